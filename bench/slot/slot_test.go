//go:build long

package main

import (
	"io"
	"os/exec"
	"testing"
	"time"

	"lapse/bench/internal/measure"
	"lapse/internal/fixture"
	"lapse/internal/pgserver"
	"lapse/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestEveryWayIsMeasuredAndEveryEventComes(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("pg_recvlogical"); err != nil {
		t.Skip(err)
	}
	lapse := fixture.BuildLapse(t)
	install, err := pgserver.Find(pgtest.Newest(t))
	if err != nil {
		t.Fatal(err)
	}
	b := bench{
		Options: measure.Options{Lapse: lapse, Rounds: 1, Dir: t.TempDir(), Progress: io.Discard},
		install: install, warming: 1, rows: 20_000, passing: 20_000, lasts: time.Second, runs: 1, rates: []int{200, 2000},
		scenarios: []scenario{{unix, keyOnly}, {tcp, keyOnly}, {unix, columns}, {unix, full}},
	}
	if b.debezium, err = b.findDebezium(); err != nil {
		t.Fatal(err)
	}
	figures := 0
	for _, s := range b.scenarios {
		figures += len(b.ways(s))
	}
	r, err := b.measure(t.Context())
	if err != nil || len(r.Figures) != figures || len(r.Latencies) != len(b.rates) || len(r.Passing) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	if b.debezium != "" && len(r.Beside) != 2 {
		t.Errorf("%d lines beside Debezium", len(r.Beside))
	}
	for i := range r.Figures {
		if f := &r.Figures[i]; f.Ratio.Median <= 0 || f.Memory.Median <= 0 {
			t.Errorf("%+v", f)
		}
	}
	for _, l := range r.Latencies {
		if l.Events != l.Rate || l.P99 < l.P50 {
			t.Errorf("%+v", l)
		}
	}
	if err := r.Print(io.Discard); err != nil {
		t.Error(err)
	}
}
