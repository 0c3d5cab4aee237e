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

func TestEveryWayIsMeasuredOnEveryTable(t *testing.T) {
	t.Parallel()
	lapse := fixture.BuildLapse(t)
	p := plan{Options: measure.Options{Lapse: lapse, Major: pgtest.Newest(t), Rounds: 1, Dir: t.TempDir(), Progress: io.Discard}, rows: 4000, looked: 2000, idlers: 2, idleFor: time.Second, big: 20_000}
	if err := p.check(); err != nil {
		t.Fatal(err)
	}
	r, err := p.measure(t.Context())
	if err != nil || len(r.Figures) != len(tables())*len(ways()) || len(r.Looks) != 4 || len(r.Idle) != 4 || len(r.Big) != 2 {
		t.Fatalf("%d figures, %d looks, %d idle, %d big, %v", len(r.Figures), len(r.Looks), len(r.Idle), len(r.Big), err)
	}
	for i := range r.Figures {
		f := &r.Figures[i]
		if f.Ratio.Median <= 0 || f.WAL.Median <= 0 || (f.Before.Median > 0) != (f.LapseCPU.Median > 0) {
			t.Errorf("%+v", f)
		}
	}
	for _, b := range r.Big {
		if b.Plan <= 0 || b.Before <= 0 || b.First < b.Before || b.Run < b.First || b.PlanMemory <= 0 || b.RunMemory <= 0 || b.Batches < 1 {
			t.Errorf("%+v", b)
		}
	}
	if err := r.Print(io.Discard); err != nil {
		t.Error(err)
	}
}

func TestOnlyWhatIsThereIsMeasured(t *testing.T) {
	t.Parallel()
	for _, p := range []plan{{rows: 999}, {rows: 1000, only: "uuid,other"}, {rows: 1000, onlyWays: "other"}} {
		if err := p.check(); err == nil {
			t.Errorf("%+v is measured", p)
		}
	}
	p := plan{rows: 1000, only: "wide,idle", onlyWays: "lapse 1"}
	if err := p.check(); err != nil || len(p.tables) != 1 || len(p.beside) != 1 || len(p.ways) != 2 {
		t.Errorf("%v, %+v", err, p)
	}
}
