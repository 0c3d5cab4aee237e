package main

import (
	"context"
	"errors"
	"fmt"
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

// server is where all ways delete.
type server struct{ *measure.Server }

func startServer(ctx context.Context, install pgserver.Install) (*server, error) {
	made, err := measure.StartServer(ctx, install, map[string]string{"shared_buffers": "1GB", "fsync": "on", "max_locks_per_transaction": "256"})
	return &server{made}, err
}

// fill makes the table, half of whose rows are due.
func (s *server) fill(ctx context.Context, of *table, rows int) error {
	if err := s.Copy(ctx, "template1", filled); err != nil {
		return err
	}
	return s.Execute(ctx, filled, of.create(rows)...)
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

// count says how many rows a database has, and how many of them are due.
func (s *server) count(ctx context.Context, database string, of *table) (c counts, err error) {
	return c, s.ask(ctx, database, // A filter would search the sidecar's due rows one by one for each row, beyond work_mem.
		"select (select count(*) from shop.sessions), (select count(*) from shop.sessions where "+of.due+")", &c.all, &c.due)
}

type counts struct{ all, due int64 }

// ask asks a database for one row.
func (s *server) ask(ctx context.Context, database, sql string, into ...any) error {
	conn, err := s.Connect(ctx, database)
	if err != nil {
		return err
	}
	return errors.Join(conn.QueryRow(ctx, sql).Scan(into...), conn.Close(context.WithoutCancel(ctx)))
}

// batches reads from the ledger how many there were, when the first began and when its rows were gone.
func (s *server) batches(ctx context.Context) (n int, first, gone time.Time, err error) {
	err = s.ask(ctx, measured, `select count(*), coalesce(min(b.started_at), now()), coalesce(min(r.finished_at), now())
		from lapse.batch b join lapse.batch_result r using (batch) where r.deleted > 0`, &n, &first, &gone)
	return n, first, gone, err
}

// watch measures what happens while something is done.
func (s *server) watch(ctx context.Context, what func() (float64, time.Duration, error)) (got sample, err error) {
	if _, err := s.Admin.Exec(ctx, "checkpoint"); err != nil {
		return got, err
	}
	var from string
	if err := s.Admin.QueryRow(ctx, "select pg_current_wal_insert_lsn()::text").Scan(&from); err != nil {
		return got, err
	}
	before, err := measure.CPU(s.PID())
	if err != nil {
		return got, err
	}
	got.begun = time.Now()
	var spent time.Duration
	if got.Seconds, spent, err = what(); err != nil {
		return got, err
	}
	after, err := measure.CPU(s.PID())
	if err != nil {
		return got, err
	}
	got.ServerCPU, got.LapseCPU = (after - before).Seconds(), spent.Seconds()
	err = s.Admin.QueryRow(ctx, "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), $1::pg_lsn)::int8", from).Scan(&got.WAL)
	return got, err
}

// verify says whether exactly what was due is gone.
func (s *server) verify(ctx context.Context, of *table, was counts) error {
	left, err := s.count(ctx, measured, of)
	if err != nil {
		return err
	}
	if left.due != 0 || left.all != was.all-was.due {
		return fmt.Errorf("%d rows are left, %d of them due; there were %d, %d of them due", left.all, left.due, was.all, was.due)
	}
	return nil
}
