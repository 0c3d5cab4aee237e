package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"lapse/bench/internal/measure"
)

// deleting measures the scenarios of deleting on one server.
func (b *bench) deleting(ctx context.Context, at station, r *report) (err error) {
	// A copy of 7,000 partitions needs its locks.
	server, err := measure.StartServer(ctx, at.install, map[string]string{"max_locks_per_transaction": "1024"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	if err := measure.Execute(ctx, server.Admin, "create role app"); err != nil {
		return err
	}
	s := &bed{b, server}
	for _, of := range at.scenarios {
		if err := s.scenario(ctx, &of, r); err != nil {
			return fmt.Errorf("%s: %w", of.name, err)
		}
	}
	return nil
}

// bed is one kind of server, on which a side is measured.
type bed struct {
	*bench
	*measure.Server
}

// The databases of a scenario, each a copy of the one before: shape, filled, one for each side under its name, measured.
const (
	shape    = "shape"    // the scenario's tables
	filled   = "filled"   // with the rows that are due
	measured = "measured" // a side's, with Lapse in it, for one round
)

func (s *bed) scenario(ctx context.Context, of *scenario, r *report) error {
	s.Say("PostgreSQL %s, %s", s.Install().Version, of.title)
	if err := s.Copy(ctx, "template1", shape); err != nil {
		return err
	}
	if err := s.Execute(ctx, shape, append(slices.Clone(of.setup), "vacuum analyze")...); err != nil {
		return err
	}
	for _, w := range of.workloads {
		samples, err := s.workload(ctx, of, w)
		if err != nil {
			return fmt.Errorf("%s: %w", w.title(), err)
		}
		r.add(s.Install(), of, w, samples)
	}
	return s.Drop(ctx, shape)
}

// workload returns the samples of the rounds that count, by side.
func (s *bed) workload(ctx context.Context, of *scenario, w workload) (measure.Samples[sample], error) {
	if err := s.prepare(ctx, of, w); err != nil {
		return nil, err
	}
	samples, err := s.inTurns(w, func(side side) (sample, error) { return s.sample(ctx, side, of, w) })
	if err != nil {
		return nil, err
	}
	for _, side := range s.sides {
		if err := errors.Join(s.Drop(ctx, side.name), s.DropRoles(ctx, side.prefix())); err != nil {
			return nil, err
		}
	}
	return samples, nil
}

// prepare makes each side's database: the rows that are due, and Lapse.
func (s *bed) prepare(ctx context.Context, of *scenario, w workload) error {
	if err := s.Copy(ctx, shape, filled); err != nil {
		return err
	}
	if w.due > 0 {
		if err := s.Execute(ctx, filled, of.due(w.due), "vacuum analyze"); err != nil {
			return err
		}
	}
	for _, side := range s.sides {
		if err := s.Copy(ctx, filled, side.name); err != nil {
			return err
		}
		begun := time.Now()
		if err := side.install(ctx, s.place(side, side.name), w.batch); err != nil {
			return err
		}
		s.Say("  %s, %s: init and apply took %.2f s", w.title(), side.name, time.Since(begun).Seconds())
	}
	return s.Drop(ctx, filled)
}

// place is a side's in one of its databases.
func (s *bed) place(side side, database string) place {
	return place{dir: filepath.Join(s.Dir, side.name), url: s.URL("postgres", database), settings: "audit: off\n"}
}

// sample lets a side run once, on a copy of its database.
func (s *bed) sample(ctx context.Context, side side, of *scenario, w workload) (got sample, err error) {
	if err := s.Copy(ctx, side.name, measured); err != nil {
		return got, err
	}
	for _, setting := range of.database {
		if _, err := s.Admin.Exec(ctx, "alter database "+measured+" set "+setting); err != nil {
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
		return got, fmt.Errorf("it deleted %d rows of %d that are due", got.Rows, w.due)
	}
	return got, s.Drop(ctx, measured)
}

// ledger reads what the batches did.
func (s *bed) ledger(ctx context.Context) (got sample, err error) {
	conn, err := s.Connect(ctx, measured)
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
