package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"lapse/bench/internal/measure"
)

// warmUp is how long the executor runs before it is measured: its first looks plan and examine what the later ones know.
const warmUp = 15 * time.Second

// idling is what an executor costs that has nothing to do.
type idling struct {
	Policies     int     `json:"policies"`
	Partitions   int     `json:"partitions"` // of the one table; 0: the tables have none
	Seconds      float64 `json:"seconds"`
	ServerCPU    float64 `json:"server_cpu_seconds_per_minute"`
	LapseCPU     float64 `json:"lapse_cpu_seconds_per_minute"`
	Transactions float64 `json:"transactions_per_second"`
	WAL          float64 `json:"wal_bytes_per_second"`

	Planning []planning `json:"planning"`
}

// idle measures one policy, and many, that are asked each second and find nothing, and one on many partitions.
func (p *plan) idle(ctx context.Context, s *server, r *report) error {
	for _, of := range []idling{{Policies: 1}, {Policies: p.idlers}, {Policies: p.idlers * 5 / 2}, {Policies: 1, Partitions: p.idlers * 25}} {
		p.Say("PostgreSQL %s, %d policies with nothing due on %d partitions, each every second, for %s", r.Server, of.Policies, of.Partitions, p.idleFor)
		if err := s.Copy(ctx, "template1", installed); err != nil {
			return err
		}
		planning, err := p.idlePolicies(ctx, s, of)
		if err != nil {
			return err
		}
		i, err := p.idlesFor(ctx, s)
		if err != nil {
			return fmt.Errorf("%d policies with nothing due: %w", of.Policies, err)
		}
		i.Policies, i.Partitions, i.Planning = of.Policies, of.Partitions, planning
		r.Idle = append(r.Idle, i)
		if err := s.dropAll(ctx); err != nil {
			return err
		}
	}
	return nil
}

// idlePolicies makes tables and an armed policy for each, and says what that took. Half of the partitions are of days that are gone, and empty.
func (p *plan) idlePolicies(ctx context.Context, s *server, of idling) ([]planning, error) {
	file := strings.Builder{}
	file.WriteString("policies:\n")
	for n := range of.Policies {
		fmt.Fprintf(&file, "  - {name: p%[1]d, table: shop.t%[1]d, expire: {column: at, after: 30 days}, every: 1 second, state: armed}\n", n)
	}
	tables := []string{fmt.Sprintf(`do $$ begin
		  for n in 0 .. %d loop
		    execute format('create table shop.t%%s (id bigint primary key, at timestamptz not null)', n);
		    execute format('create index on shop.t%%s (at, id)', n);
		    execute format('insert into shop.t%%s select g, now() from generate_series(1, 1000) g', n);
		  end loop;
		end $$`, of.Policies-1)}
	if of.Partitions > 0 {
		tables = []string{
			"create table shop.t0 (id bigint, at timestamptz, primary key (at, id)) partition by range (at)",
			fmt.Sprintf(`do $$ begin
			  for n in 0 .. %[1]d - 1 loop
			    execute format('create table shop.t0_%%s partition of shop.t0 for values from (%%L) to (%%L)', n, current_date + n - %[1]d / 2, current_date + n - %[1]d / 2 + 1);
			    commit;
			  end loop;
			end $$`, of.Partitions),
			"insert into shop.t0 select g, now() from generate_series(1, 1000) g",
		}
	}
	statements := append([]string{"create schema shop", "create role app", "alter schema shop owner to app", "set role app"}, tables...)
	if err := s.Execute(ctx, installed, append(statements, "reset role", "vacuum analyze")...); err != nil {
		return nil, err
	}
	return p.planned(ctx, s, file.String())
}

// idlesFor runs an executor and measures it once it is warm.
func (p *plan) idlesFor(ctx context.Context, s *server) (i idling, err error) {
	process, err := p.lapse().Start(ctx, s.settings(installed, 1), "run")
	if err != nil {
		return i, err
	}
	defer func() { err = errors.Join(err, process.Stop(0)) }()
	var before, after usage
	for _, part := range []struct {
		lasts time.Duration
		then  *usage
	}{{warmUp, &before}, {p.idleFor, &after}} {
		select {
		case <-ctx.Done():
			return i, context.Cause(ctx)
		case <-process.Exited():
			return i, fmt.Errorf("lapse run ended: %s", process.State())
		case <-time.After(part.lasts):
		}
		if *part.then, err = s.usage(ctx, process.PID()); err != nil {
			return i, err
		}
	}
	seconds := after.at.Sub(before.at).Seconds()
	return idling{
		Seconds: seconds, ServerCPU: (after.server - before.server).Seconds() / seconds * 60, LapseCPU: (after.lapse - before.lapse).Seconds() / seconds * 60,
		Transactions: float64(after.commits-before.commits) / seconds, WAL: float64(after.wal-before.wal) / seconds,
	}, nil
}

// usage is what was used up to an instant.
type usage struct {
	at            time.Time
	server, lapse time.Duration
	commits, wal  int64
}

func (s *server) usage(ctx context.Context, pid int) (u usage, err error) {
	// What a session did is in the statistics within a second of its next pause.
	err = s.Admin.QueryRow(ctx, `select d.xact_commit, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::int8 from pg_stat_database d where d.datname = $1`,
		installed).Scan(&u.commits, &u.wal)
	if err != nil {
		return u, err
	}
	if u.server, err = measure.CPU(s.PID()); err != nil {
		return u, err
	}
	u.lapse, err = measure.CPU(pid)
	u.at = time.Now()
	return u, err
}
