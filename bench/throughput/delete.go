package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgserver"
)

// deleting measures the scenarios of deleting on one server.
func (b *bench) deleting(ctx context.Context, at station, r *report) (err error) {
	server, err := pgserver.Start(ctx, pgserver.Options{Install: at.install, Settings: map[string]string{
		// Nothing else is to happen while a side is measured, and a copy of 7,000 partitions needs its locks.
		"autovacuum": "off", "checkpoint_timeout": "1h", "max_wal_size": "20GB", "shared_buffers": "512MB",
		"max_locks_per_transaction": "1024",
	}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	admin, err := pgx.Connect(ctx, server.URL("postgres", "postgres"))
	if err != nil {
		return err
	}
	defer func() { _ = admin.Close(context.WithoutCancel(ctx)) }()
	if _, err := admin.Exec(ctx, "create role app"); err != nil {
		return err
	}
	s := &stand{bench: b, server: server, admin: admin}
	for _, of := range at.scenarios {
		if err := s.scenario(ctx, &of, r); err != nil {
			return fmt.Errorf("%s: %w", of.name, err)
		}
	}
	return nil
}

// stand is a running server with its superuser's session.
type stand struct {
	*bench
	server *pgserver.Server
	admin  *pgx.Conn
}

// The databases of a scenario, each a copy of the one before: shape, filled, one for each side under its name, measured.
const (
	shape    = "shape"    // the scenario's tables
	filled   = "filled"   // with the rows that are due
	measured = "measured" // a side's, with Lapse in it, for one round
)

func (s *stand) scenario(ctx context.Context, of *scenario, r *report) error {
	fmt.Fprintf(s.progress, "PostgreSQL %s, %s\n", s.server.Install().Version, of.title)
	if err := s.copy(ctx, "template1", shape); err != nil {
		return err
	}
	if err := s.execute(ctx, shape, append(slices.Clone(of.setup), "vacuum analyze")...); err != nil {
		return err
	}
	for _, w := range of.workloads {
		samples, err := s.workload(ctx, of, w)
		if err != nil {
			return fmt.Errorf("%s: %w", w.title(), err)
		}
		r.add(s.server.Install(), of, w, samples)
	}
	return s.drop(ctx, shape)
}

// workload returns the samples of the rounds that count, by side.
func (s *stand) workload(ctx context.Context, of *scenario, w workload) (map[string][]sample, error) {
	if err := s.prepare(ctx, of, w); err != nil {
		return nil, err
	}
	samples, err := s.inTurns(w.title(), func(side side) (sample, error) { return s.sample(ctx, side, of, w) })
	if err != nil {
		return nil, err
	}
	for _, side := range s.sides {
		if err := errors.Join(s.drop(ctx, side.name), s.dropRoles(ctx, side)); err != nil {
			return nil, err
		}
	}
	return samples, nil
}

// prepare makes each side's database: the rows that are due, and Lapse.
func (s *stand) prepare(ctx context.Context, of *scenario, w workload) error {
	if err := s.copy(ctx, shape, filled); err != nil {
		return err
	}
	if w.due > 0 {
		if err := s.execute(ctx, filled, of.due(w.due), "vacuum analyze"); err != nil {
			return err
		}
	}
	for _, side := range s.sides {
		if err := s.copy(ctx, filled, side.name); err != nil {
			return err
		}
		begun := time.Now()
		if err := side.install(ctx, s.place(side, side.name), w.batch); err != nil {
			return err
		}
		fmt.Fprintf(s.progress, "  %s, %s: init and apply took %.2f s\n", w.title(), side.name, time.Since(begun).Seconds())
	}
	return s.drop(ctx, filled)
}

// place is a side's in one of its databases.
func (s *stand) place(side side, database string) place {
	return place{dir: filepath.Join(s.dir, side.name), url: s.server.URL("postgres", database), settings: "audit: off\n"}
}

// sample lets a side run once, on a copy of its database.
func (s *stand) sample(ctx context.Context, side side, of *scenario, w workload) (got sample, err error) {
	if err := s.copy(ctx, side.name, measured); err != nil {
		return got, err
	}
	for _, setting := range of.database {
		if _, err := s.admin.Exec(ctx, "alter database "+measured+" set "+setting); err != nil {
			return got, err
		}
	}
	p, err := side.run(ctx, s.place(side, measured), of.limit)
	if err != nil {
		return got, err
	}
	if got, err = s.ledger(ctx); err != nil {
		return got, err
	}
	got.Command, got.CutOff = p.took.Seconds(), p.cutOff
	if !p.cutOff && got.Rows != int64(w.due) {
		return got, fmt.Errorf("%s deleted %d rows of %d that are due", side.name, got.Rows, w.due)
	}
	return got, s.drop(ctx, measured)
}

// ledger reads what the batches did.
func (s *stand) ledger(ctx context.Context) (got sample, err error) {
	conn, err := pgx.Connect(ctx, s.server.URL("postgres", measured))
	if err != nil {
		return got, err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	err = conn.QueryRow(ctx, `
		select count(*), coalesce(sum(r.deleted), 0)::bigint,
		       coalesce(extract(epoch from max(r.finished_at) - min(b.started_at)), 0)::float8
		  from lapse.batch b
		  join lapse.batch_result r using (batch)
		 where r.deleted > 0`).Scan(&got.Batches, &got.Rows, &got.Seconds)
	return got, err
}

// copy makes a database. Files are copied rather than logged, which is faster, and the default up to PostgreSQL 14.
func (s *stand) copy(ctx context.Context, from, to string) error {
	sql := "create database " + to + " template " + from
	if s.server.Install().Major >= 15 {
		sql += " strategy file_copy"
	}
	_, err := s.admin.Exec(ctx, sql)
	return err
}

func (s *stand) drop(ctx context.Context, database string) error {
	_, err := s.admin.Exec(ctx, "drop database "+database+" with (force)")
	return err
}

// dropRoles drops what the side made for the cluster; what belonged to it went with the database.
func (s *stand) dropRoles(ctx context.Context, side side) error {
	rows, err := s.admin.Query(ctx, `select quote_ident(rolname) from pg_roles where starts_with(rolname, $1)`, side.prefix())
	if err != nil {
		return err
	}
	roles, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, role := range roles {
		if _, err := s.admin.Exec(ctx, "drop role "+role); err != nil {
			return err
		}
	}
	return nil
}

// execute runs statements in a database, each in a transaction of its own.
func (s *stand) execute(ctx context.Context, database string, statements ...string) error {
	return execute(ctx, s.server.URL("postgres", database), statements...)
}

// execute runs statements as the superuser, each in a transaction of its own.
func execute(ctx context.Context, url string, statements ...string) (err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	for _, sql := range statements {
		for _, sql := range []string{sql, "reset role"} {
			if _, err := conn.PgConn().Exec(ctx, sql).ReadAll(); err != nil {
				return fmt.Errorf("%w\nin: %.200s", err, sql)
			}
		}
	}
	return nil
}
