package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/bench/internal/measure"
	"lapse/internal/pgserver"
)

const (
	database = "app"
	liveRows = 20_000 // of each table, that are not due
)

// server is where the application and Lapse meet. The application has a login of its own: pg_stat_statements keeps the two apart by it.
type server struct {
	*measure.Server
	conn *pgx.Conn
}

func (p *plan) startServer(ctx context.Context, install pgserver.Install) (*server, error) {
	made, err := measure.StartServer(ctx, install, map[string]string{
		"fsync": "on", "autovacuum": "on", "checkpoint_timeout": "5min", "max_wal_size": "4GB",
		"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track_planning": "on",
	})
	if err != nil {
		return nil, err
	}
	s := &server{Server: made}
	if err = s.Copy(ctx, "template1", database); err == nil {
		s.conn, err = s.Connect(ctx, database)
	}
	if err == nil {
		err = p.fill(ctx, s)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (p *plan) fill(ctx context.Context, s *server) error {
	table := func(name string) []string {
		return []string{
			"create table shop." + name + " (id bigint generated always as identity primary key, at timestamptz not null, n int not null default 0, note text not null)",
			"create index on shop." + name + " (at)",
			fmt.Sprintf("insert into shop.%s (at, note) select now() - random() * interval '20 days', repeat('x', 80) from generate_series(1, %d)", name, liveRows),
		}
	}
	all := []string{"create extension pg_stat_statements", "create schema shop", "create role app login", "alter schema shop owner to app", "set role app"}
	for n := range p.policies {
		all = append(all, table(fmt.Sprintf("t%d", n))...)
	}
	all = append(all, table("backlog")...)
	all = append(all, fmt.Sprintf("insert into shop.backlog (at, note) select now() - interval '90 days' + n * interval '1 second', repeat('x', 80) from generate_series(1, %d) n", p.backlog),
		"reset role", "vacuum analyze", "checkpoint")
	return measure.Execute(ctx, s.conn, all...)
}

// application keeps to its rate until ctx ends.
func (p *plan) application(ctx context.Context, s *server) error {
	errs := make([]error, p.connections)
	began := time.Now()
	var all sync.WaitGroup
	for i := range p.connections {
		all.Go(func() { errs[i] = p.connection(ctx, s, began) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func (p *plan) connection(ctx context.Context, s *server, began time.Time) error {
	whole := context.WithoutCancel(ctx)
	conn, err := pgx.Connect(whole, s.SocketURL("app", database))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(whole) }()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Until(began.Add(time.Duration(n*p.connections) * time.Second / time.Duration(p.rate)))):
		}
		table := fmt.Sprintf("shop.t%d", rand.IntN(p.policies)) //nolint:gosec // any will do
		if err := transaction(whole, conn, table); err != nil {
			return err
		}
	}
}

func transaction(ctx context.Context, conn *pgx.Conn, table string) error {
	id := func() int { return 1 + rand.IntN(liveRows) } //nolint:gosec // any will do
	insert := "insert into " + table + " (at, note) values (now() - interval '30 days' + random() * interval '1 minute', repeat('x', 80))"
	if _, err := conn.Exec(ctx, insert); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "update "+table+" set n = n + 1 where id = $1", id()); err != nil {
		return err
	}
	for range 2 {
		var n int
		if err := conn.QueryRow(ctx, "select n from "+table+" where id = $1", id()).Scan(&n); err != nil {
			return err
		}
	}
	return nil
}

// reading is what was used up to an instant.
type reading struct {
	At         time.Time
	CPU, Lapse time.Duration      // the server's processes, and lapse
	WAL        int64              // bytes
	Batches    int64              // in the ledger
	Rows       int64              // that they deleted
	Catalog    map[string]int64   // bytes of each of Lapse's tables with its indexes
	Said       map[bool]statement // by pg_stat_statements; true: the application's
}

// statement is what pg_stat_statements says of one side's.
type statement struct {
	Calls int64
	Time  float64 // milliseconds, planning and execution
	WAL   int64
}

func (s *server) reading(ctx context.Context, lapse *measure.Process) (r reading, err error) {
	r.At, r.Said, r.Catalog = time.Now(), map[bool]statement{}, map[string]int64{}
	if err := s.conn.QueryRow(ctx, `select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::int8,
		(select count(*) from lapse.batch_result), (select coalesce(sum(deleted), 0)::int8 from lapse.batch_result)`).
		Scan(&r.WAL, &r.Batches, &r.Rows); err != nil {
		return r, err
	}
	sizes, err := s.conn.Query(ctx, `select relname, pg_total_relation_size(oid) from pg_class where relnamespace = 'lapse'::regnamespace and relkind = 'r'`)
	if err != nil {
		return r, err
	}
	var table string
	var size int64
	if _, err := pgx.ForEachRow(sizes, []any{&table, &size}, func() error { r.Catalog[table] = size; return nil }); err != nil {
		return r, err
	}
	// This session's own statements are of the superuser too, but few, and none between two readings.
	rows, err := s.conn.Query(ctx, `select userid = 'app'::regrole, sum(calls)::int8, sum(total_plan_time + total_exec_time), sum(wal_bytes)::int8
		from pg_stat_statements where dbid = (select oid from pg_database where datname = current_database()) group by 1`)
	if err != nil {
		return r, err
	}
	var app bool
	var of statement
	if _, err := pgx.ForEachRow(rows, []any{&app, &of.Calls, &of.Time, &of.WAL}, func() error { r.Said[app] = of; return nil }); err != nil {
		return r, err
	}
	if r.CPU, err = measure.CPU(s.PID()); err == nil && lapse != nil {
		r.Lapse, err = measure.CPU(lapse.PID())
	}
	return r, err
}
