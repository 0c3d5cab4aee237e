//go:build long

package main

import (
	"io"
	"testing"
	"time"

	"lapse/bench/internal/measure"
	"lapse/internal/fixture"
	"lapse/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestBothPhasesAreMeasured(t *testing.T) {
	t.Parallel()
	p := plan{
		Options:  measure.Options{Lapse: fixture.BuildLapse(t), Major: pgtest.Newest(t), Rounds: 1, Dir: t.TempDir(), Progress: io.Discard},
		policies: 2, rate: 100, connections: 2, backlog: 200_000, lasts: 10 * time.Second, settle: 10 * time.Second,
	}
	r, err := p.measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []*phase{&r.Alone, &r.Beside} {
		if of.Application.Statements <= 0 || of.Application.WAL <= 0 || of.ServerCPU <= 0 || (of.LapseCPU > 0) != (of == &r.Beside) {
			t.Errorf("%+v", of)
		}
	}
	if r.Beside.Lapse.Statements <= r.Alone.Lapse.Statements {
		t.Errorf("%+v", r)
	}
	if err := r.Print(io.Discard); err != nil {
		t.Error(err)
	}
}
