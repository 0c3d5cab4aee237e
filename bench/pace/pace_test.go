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

func TestEveryWayOfEveryScenarioIsMeasured(t *testing.T) {
	t.Parallel()
	lapse := fixture.BuildLapse(t)
	p := plan{
		Options: measure.Options{Lapse: lapse, Major: pgtest.Newest(t), Rounds: 1, Dir: t.TempDir(), Progress: io.Discard},
		due:     2_000_000, workers: 2, ways: []string{alone, gentle, unlimited, "20%"},
		app:       app{does: keyLookups, rate: 200, connections: 2, accounts: 1000, lasts: time.Second, warm: 100 * time.Millisecond},
		scenarios: []scenario{{"fast", otherTable}, {"slow", ownTable}},
	}
	r, err := p.measure(t.Context())
	if err != nil || len(r.Figures) != len(p.scenarios)*len(p.ways) {
		t.Fatalf("%d figures, %v", len(r.Figures), err)
	}
	for i := range r.Figures {
		f := &r.Figures[i]
		if f.P99.Median <= 0 || f.Ratio.Median <= 0 || (f.Deleted.Median > 0) != (f.Way != alone) {
			t.Errorf("%+v", f)
		}
	}
	if err := r.Print(io.Discard); err != nil {
		t.Error(err)
	}
}
