package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/bench/internal/measure"
	"lapse/internal/pgserver"
)

const (
	database = "app"
	tellers  = 100
	branches = 100 // no more than two connections meet at one, as a rule
)

// diskSettings make a disk of the one that is there.
var diskSettings = map[string]map[string]string{
	"fast": {"commit_delay": "0"},
	"slow": {"commit_delay": "1000", "commit_siblings": "0"},
}

// server is where the application and Lapse meet.
type server struct {
	*measure.Server
	conn     *pgx.Conn
	accounts int
}

func startServer(ctx context.Context, install pgserver.Install, disk string) (*server, error) {
	settings := map[string]string{"fsync": "on", "shared_buffers": "1GB", "max_wal_size": "4GB", "checkpoint_timeout": "30min"}
	maps.Copy(settings, diskSettings[disk])
	made, err := measure.StartServer(ctx, install, settings)
	if err != nil {
		return nil, err
	}
	s := &server{Server: made}
	if err = s.Copy(ctx, "template1", database); err == nil {
		s.conn, err = s.Connect(ctx, database)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// fill makes the tables. Accounts have the low ids of both, and are not due in either.
func (s *server) fill(ctx context.Context, accounts int) error {
	s.accounts = accounts
	live := "select n, now() - interval '1 day', 0, repeat('x', 80) from generate_series(1, " + strconv.Itoa(accounts) + ") n"
	return measure.Execute(ctx, s.conn, "create schema shop", "create role app", "alter schema shop owner to app", "set role app",
		"create table shop.sessions (id bigint primary key, at timestamptz not null, balance bigint not null, note text not null)",
		"create index on shop.sessions (at, id)",
		"create table shop.accounts (id bigint primary key, at timestamptz not null, balance bigint not null, note text not null)",
		"insert into shop.sessions "+live, "insert into shop.accounts "+live,
		"create table shop.tellers (id int primary key, balance bigint not null) with (fillfactor = 20)",
		fmt.Sprintf("insert into shop.tellers select n, 0 from generate_series(1, %d) n", tellers),
		"create table shop.branches (id int primary key, balance bigint not null) with (fillfactor = 20)",
		fmt.Sprintf("insert into shop.branches select n, 0 from generate_series(1, %d) n", branches),
		"create table shop.history (account bigint, teller int, branch int, amount bigint, at timestamptz)", "reset role")
}

// refill makes so many rows due, and takes away what the last round left.
func (s *server) refill(ctx context.Context, due int) error {
	return measure.Execute(ctx, s.conn, fmt.Sprintf("delete from shop.sessions where id > %d", s.accounts), "truncate shop.history", "vacuum shop.sessions",
		fmt.Sprintf("insert into shop.sessions select %d + n, now() - interval '60 days' + n * interval '1 ms', 0, repeat('x', 80) from generate_series(1, %d) n", s.accounts, due),
		"vacuum analyze shop.sessions", "vacuum analyze shop.accounts, shop.tellers, shop.branches", "checkpoint")
}

// deleted is how many rows were deleted per second between two instants, and how many a batch had.
func (s *server) deleted(ctx context.Context, from, to time.Time) (perSecond, batch float64, err error) {
	err = s.conn.QueryRow(ctx, `select coalesce(sum(deleted), 0)::float8, coalesce(percentile_cont(0.5) within group (order by deleted), 0)
		from lapse.batch_result where finished_at between $1 and $2`, from, to).Scan(&perSecond, &batch)
	return perSecond / to.Sub(from).Seconds(), batch, err
}
