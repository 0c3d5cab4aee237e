package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lapse/bench/internal/measure"
)

const (
	smallTable = 1000
	partitions = 1000
	lookTimes  = 200
)

// looking is a table in which nothing is due.
type looking struct {
	name  string
	setup []string
}

// lookings are a small table, a large one, and partitions of days where the policy keeps thirty.
func lookings(rows int) []looking {
	plain := func(rows int) []string {
		return []string{
			"create table shop.sessions (id bigint primary key, at timestamptz not null, note text not null)",
			fmt.Sprintf(`insert into shop.sessions select n, now() - interval '29 days' * (n::float8 / %[1]d), repeat('x', 20) from generate_series(1, %[1]d) n`, rows),
			"create index on shop.sessions (at, id)",
		}
	}
	return []looking{
		{fmt.Sprintf("%d rows", smallTable), plain(smallTable)},
		{fmt.Sprintf("%d rows", rows), plain(rows)},
		{fmt.Sprintf("%d partitions, one for each day to come", partitions), days(1)},
		{fmt.Sprintf("%d partitions, one for each day gone, empty but for the last", partitions), days(-1)},
	}
}

// days are partitions of a day each, from today on forwards or backwards, with rows of today alone.
func days(step int) []string {
	return []string{
		"create table shop.sessions (id bigint, at timestamptz, primary key (at, id)) partition by range (at)",
		fmt.Sprintf(`do $$ begin
			  for n in 0 .. %[2]d loop
			    execute format('create table shop.sessions_%%s partition of shop.sessions for values from (%%L) to (%%L)',
			                   n, current_date + n * %[1]d, current_date + n * %[1]d + 1);
			  end loop;
			end $$`, step, partitions-1),
		"insert into shop.sessions select n, date_trunc('day', now()) from generate_series(1, 1000) n",
	}
}

// looks measures what a look costs that finds nothing, on each of the tables.
func (p *plan) looks(ctx context.Context, s *server, r *report) error {
	for _, of := range lookings(p.looked) {
		p.Say("PostgreSQL %s, nothing due, %s", r.Server, of.name)
		if err := s.Copy(ctx, "template1", installed); err != nil {
			return err
		}
		statements := append([]string{"create schema shop", "create role app", "alter schema shop owner to app", "set role app"}, of.setup...)
		if err := s.Execute(ctx, installed, append(statements, "reset role", "vacuum analyze")...); err != nil {
			return err
		}
		if err := p.install(ctx, s, chosenTables([]string{"bigint"})[0].policy()); err != nil {
			return err
		}
		if _, err := p.lapse().Run(ctx, s.settings(installed, 1), "run", "--once"); err != nil { // what it learns of the table is kept
			return err
		}
		l, err := s.look(ctx, of.name)
		if err != nil {
			return fmt.Errorf("%s: %w", of.name, err)
		}
		r.Looks = append(r.Looks, l)
		if err := s.dropAll(ctx); err != nil {
			return err
		}
	}
	return nil
}

// look calls the policy's look many times in one session, as the executor does.
func (s *server) look(ctx context.Context, name string) (l look, err error) {
	conn, err := s.Connect(ctx, installed)
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	var took []float64
	for range lookTimes {
		begun := time.Now()
		if _, err := conn.Exec(ctx, "select * from lapse.due_1_1(null, null)"); err != nil {
			return l, err
		}
		took = append(took, float64(time.Since(begun).Microseconds())/1000)
	}
	return look{name, measure.SpreadOf(took)}, nil
}
