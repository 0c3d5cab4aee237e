package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"lapse/bench/internal/measure"
	"lapse/internal/pgserver"
)

// The databases: the table with its rows, the same with Lapse in it, and the copy in which one way deletes.
const (
	filled    = "filled"
	installed = "installed"
	measured  = "measured"
)

// orderSQL is the place of row n in time, of $1 rows.
var orderSQL = map[string]string{
	"clustered": "n",
	"shuffled":  "(n::bigint * 7919) % $1 + 1",
}

// server is where all ways delete.
type server struct {
	*measure.Server

	mu    sync.Mutex
	spent time.Duration // CPU time of lapse's processes
}

func startServer(ctx context.Context, install pgserver.Install) (*server, error) {
	made, err := measure.StartServer(ctx, install, map[string]string{"shared_buffers": "1GB", "fsync": "on"})
	return &server{Server: made}, err
}

// fill makes the table, half of whose rows are due: none falls due, or is no longer due, while others are measured.
func (s *server) fill(ctx context.Context, order string, rows int) error {
	if err := s.Copy(ctx, "template1", filled); err != nil {
		return err
	}
	return s.Execute(ctx, filled,
		"create schema shop", "create role app", "alter schema shop owner to app", "set role app",
		"create table shop.sessions (id bigint primary key, user_id int not null, at timestamptz not null, note text not null)",
		strings.ReplaceAll(`insert into shop.sessions
			select n, n % 1000, now() - case when m <= $1 / 2 then interval '61 days' else interval '59 days' end + interval '60 days' * (m::float8 / $1),
			       repeat('x', 100)
			  from (select n, `+orderSQL[order]+` as m from generate_series(1, $1) n) r`, "$1", strconv.Itoa(rows)),
		"create index on shop.sessions (at, id)", "reset role", "vacuum analyze shop.sessions", "checkpoint")
}

// dropAll takes the databases and their roles away.
func (s *server) dropAll(ctx context.Context) error {
	return errors.Join(s.Drop(ctx, filled, installed, measured), s.DropRoles(ctx, "lapse_"), s.DropRoles(ctx, "app"))
}

// holdSnapshot opens a transaction that sees the database as it is, until it is released.
func (s *server) holdSnapshot(ctx context.Context, database string) (release func(), err error) {
	conn, err := s.Connect(ctx, database)
	if err != nil {
		return nil, err
	}
	for _, sql := range []string{"begin isolation level repeatable read", "select count(*) from pg_class"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return nil, errors.Join(err, conn.Close(ctx))
		}
	}
	return func() { _ = conn.Close(context.WithoutCancel(ctx)) }, nil
}

// left counts the rows that are there.
func (s *server) left(ctx context.Context) (n int64, err error) {
	conn, err := s.Connect(ctx, measured)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	err = conn.QueryRow(ctx, "select count(*) from shop.sessions").Scan(&n)
	return n, err
}

// add takes CPU time of a process down.
func (s *server) add(spent time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spent += spent
}

// watch measures what happens while something is done.
func (s *server) watch(ctx context.Context, what func() (float64, error)) (got sample, err error) {
	if _, err := s.Admin.Exec(ctx, "checkpoint"); err != nil {
		return got, err
	}
	s.spent = 0
	var from, to string
	if err := s.Admin.QueryRow(ctx, "select pg_current_wal_insert_lsn()::text").Scan(&from); err != nil {
		return got, err
	}
	before, err := measure.CPU(s.PID())
	if err != nil {
		return got, err
	}
	if got.Seconds, err = what(); err != nil {
		return got, err
	}
	after, err := measure.CPU(s.PID())
	if err != nil {
		return got, err
	}
	got.ServerCPU, got.LapseCPU = (after - before).Seconds(), s.spent.Seconds()
	err = s.Admin.QueryRow(ctx, "select pg_current_wal_insert_lsn()::text, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1::pg_lsn)::int8", from).Scan(&to, &got.WAL)
	return got, err
}
