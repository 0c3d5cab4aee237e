package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/measure"
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
	server *pgserver.Server
	admin  *pgx.Conn
	has    map[string]bool

	mu    sync.Mutex
	spent time.Duration // CPU time of lapse's processes
}

func startServer(ctx context.Context, install pgserver.Install) (*server, error) {
	made, err := pgserver.Start(ctx, pgserver.Options{Install: install, Settings: map[string]string{
		// Nothing else is to happen while a way is measured.
		"autovacuum": "off", "checkpoint_timeout": "1h", "max_wal_size": "20GB", "shared_buffers": "1GB", "fsync": "on",
	}})
	if err != nil {
		return nil, err
	}
	s := &server{server: made, has: map[string]bool{}}
	if s.admin, err = pgx.Connect(ctx, made.URL("postgres", "postgres")); err != nil {
		return nil, errors.Join(err, made.Close())
	}
	return s, nil
}

func (s *server) close() error {
	_ = s.admin.Close(context.Background())
	return s.server.Close()
}

// fill makes the table, half of whose rows are due: none falls due, or is no longer due, while others are measured.
func (s *server) fill(ctx context.Context, order string, rows int) error {
	if err := s.copy(ctx, "template1", filled); err != nil {
		return err
	}
	return s.execute(ctx, filled,
		"create schema shop", "create role app", "alter schema shop owner to app", "set role app",
		"create table shop.sessions (id bigint primary key, user_id int not null, at timestamptz not null, note text not null)",
		strings.ReplaceAll(`insert into shop.sessions
			select n, n % 1000, now() - case when m <= $1 / 2 then interval '61 days' else interval '59 days' end + interval '60 days' * (m::float8 / $1),
			       repeat('x', 100)
			  from (select n, `+orderSQL[order]+` as m from generate_series(1, $1) n) r`, "$1", strconv.Itoa(rows)),
		"create index on shop.sessions (at, id)", "reset role", "vacuum analyze shop.sessions", "checkpoint")
}

// copy makes a database of another, in its place if it is there.
func (s *server) copy(ctx context.Context, from, to string) error {
	if s.has[to] {
		if _, err := s.admin.Exec(ctx, "drop database "+to+" with (force)"); err != nil {
			return err
		}
	}
	sql := "create database " + to + " template " + from
	if s.server.Install().Major >= 15 {
		sql += " strategy file_copy"
	}
	_, err := s.admin.Exec(ctx, sql)
	s.has[to] = err == nil
	return err
}

// dropAll takes the databases and their roles away.
func (s *server) dropAll(ctx context.Context) error {
	for name := range s.has {
		if _, err := s.admin.Exec(ctx, "drop database if exists "+name+" with (force)"); err != nil {
			return err
		}
	}
	s.has = map[string]bool{}
	rows, err := s.admin.Query(ctx, `select quote_ident(rolname) from pg_roles where rolname = 'app' or starts_with(rolname, 'lapse_')`)
	if err != nil {
		return err
	}
	roles, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, role := range roles {
		if _, dropped := s.admin.Exec(ctx, "drop role "+role); err == nil {
			err = dropped
		}
	}
	return err
}

// execute runs statements in one session, each in a transaction of its own. Empty ones are left out.
func (s *server) execute(ctx context.Context, database string, statements ...string) (err error) {
	conn, err := pgx.Connect(ctx, s.server.SocketURL("postgres", database))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	for _, sql := range statements {
		if sql == "" {
			continue
		}
		if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
			return fmt.Errorf("%w\nin: %.200s", err, sql)
		}
	}
	return nil
}

// holdSnapshot opens a transaction that sees the database as it is, until it is released.
func (s *server) holdSnapshot(ctx context.Context, database string) (release func(), err error) {
	conn, err := pgx.Connect(ctx, s.server.URL("postgres", database))
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
	conn, err := pgx.Connect(ctx, s.server.URL("postgres", measured))
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
	if _, err := s.admin.Exec(ctx, "checkpoint"); err != nil {
		return got, err
	}
	s.spent = 0
	var from, to string
	if err := s.admin.QueryRow(ctx, "select pg_current_wal_insert_lsn()::text").Scan(&from); err != nil {
		return got, err
	}
	before, err := measure.CPU(s.server.PID())
	if err != nil {
		return got, err
	}
	if got.Seconds, err = what(); err != nil {
		return got, err
	}
	after, err := measure.CPU(s.server.PID())
	if err != nil {
		return got, err
	}
	got.ServerCPU, got.LapseCPU = (after - before).Seconds(), s.spent.Seconds()
	err = s.admin.QueryRow(ctx, "select pg_current_wal_insert_lsn()::text, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1::pg_lsn)::int8", from).Scan(&to, &got.WAL)
	return got, err
}
