package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"lapse/bench/internal/measure"
)

// big is what the plan and the first run of a table came to.
type big struct {
	Rows       int     `json:"rows"`
	Plan       float64 `json:"plan_seconds"`
	PlanMemory int64   `json:"plan_memory_bytes"`
	Before     float64 `json:"seconds_before_first_batch"`
	First      float64 `json:"seconds_to_first_rows_gone"`
	Run        float64 `json:"run_seconds"`
	RunMemory  int64   `json:"run_memory_bytes"`
	Batches    int     `json:"batches"`
}

// bigs measures a table of -big rows, and before it one of a tenth: what of both is the same does not grow with the table.
func (p *plan) bigs(ctx context.Context, s *server, r *report) error {
	of := chosenTables([]string{"bigint"})[0]
	for _, rows := range []int{p.big / 10, p.big} {
		p.Say("PostgreSQL %s, plan and run on %d rows, half of them due", r.Server, rows)
		if err := s.fill(ctx, &of, rows); err != nil {
			return err
		}
		if err := s.Copy(ctx, filled, measured); err != nil {
			return err
		}
		if err := s.Drop(ctx, filled); err != nil {
			return err
		}
		if err := p.lapse().Install(ctx, s.settings(measured, 1), of.policy()); err != nil {
			return err
		}
		b, err := p.planAndRun(ctx, s)
		if err != nil {
			return err
		}
		b.Rows = rows
		r.Big = append(r.Big, b)
		if err := s.dropAll(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (p *plan) planAndRun(ctx context.Context, s *server) (b big, err error) {
	planned, err := p.lapse().Run(ctx, s.settings(measured, 1), "plan")
	if err != nil {
		return b, err
	}
	var ran measure.Spent
	got, err := s.watch(ctx, func() (_ float64, _ time.Duration, err error) {
		ran, err = p.lapse().Run(ctx, s.settings(measured, 1), "run", "--now", "bench", "--json")
		return ran.Seconds, ran.CPU, err
	})
	if err != nil {
		return b, err
	}
	n, first, gone, err := s.batches(ctx)
	return big{
		Plan: planned.Seconds, PlanMemory: planned.Memory, Run: ran.Seconds, RunMemory: ran.Memory, Batches: n,
		Before: first.Sub(got.begun).Seconds(), First: gone.Sub(got.begun).Seconds(),
	}, err
}

func (r *report) printBig(out io.Writer) error {
	fmt.Fprintf(out, "\nPostgreSQL %s, plan and first run on a large table, half of its rows due: seconds, and lapse's memory in MB\n\n", r.Server)
	return measure.Table(out, "ROWS\tPLAN\tMEMORY\tRUN: UNTIL ITS FIRST BATCH\tUNTIL ROWS ARE GONE\tTO ITS END\tMEMORY\tBATCHES", func(w io.Writer) {
		for _, b := range r.Big {
			fmt.Fprintf(w, "%d\t%.2f\t%d\t%.2f\t%.2f\t%.1f\t%d\t%d\n", b.Rows, b.Plan, b.PlanMemory>>20, b.Before, b.First, b.Run, b.RunMemory>>20, b.Batches)
		}
	})
}
