//go:build long

package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"lapse/bench/internal/measure"
	"lapse/internal/fixture"
	"lapse/internal/kafkaserver"
	"lapse/internal/pgserver"
	"lapse/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func TestBothSidesOfEveryScenarioAreMeasured(t *testing.T) {
	t.Parallel()
	few := []workload{{due: 0, batch: 10}, {due: 20, batch: 1}}
	report := measureOnNewest(t,
		scenario{name: "plain", title: "plain", setup: plain(), due: dueInOne, workloads: few, limit: time.Minute},
		scenario{name: "keys", title: "keys", setup: append(plain(), keysElsewhere(200)...), due: dueInOne, workloads: few, limit: time.Minute},
		scenario{name: "partitions", title: "partitions", setup: partitioned(8), due: dueInFour, workloads: few, limit: time.Minute})
	if len(report.Figures) != 6 {
		t.Fatalf("%d figures of 6", len(report.Figures))
	}
	for _, f := range report.Figures {
		if f.Ratio <= 0 || f.Before == nil || f.After == nil || len(f.Before.Samples) != 1 || len(f.After.Samples) != 1 {
			t.Fatalf("%+v", f)
		}
		want := int64(20)
		if f.Unit == "seconds" {
			want = 0
		}
		for _, s := range append(f.Before.Samples, f.After.Samples...) {
			if s.Rows != want || s.Batches != want || s.CutOff {
				t.Errorf("%s, %s: %+v, want %d batches of a row", f.Scenario, f.Workload, s, want)
			}
		}
	}
}

func TestARunThatTakesTooLongIsCutOffAndSaysSo(t *testing.T) {
	t.Parallel()
	report := measureOnNewest(t, scenario{
		name: "plain", title: "plain", setup: plain(), due: dueInOne, workloads: []workload{{due: 50_000, batch: 10}}, limit: 500 * time.Millisecond,
	})
	var table strings.Builder
	if err := report.Print(&table); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(table.String(), "after cut off after") || !strings.Contains(table.String(), "before cut off after") {
		t.Error(table.String())
	}
}

// measureOnNewest measures one round of the scenarios on the newest PostgreSQL, with the lapse of this source tree on both sides.
func measureOnNewest(t *testing.T, scenarios ...scenario) *report {
	t.Helper()
	install, err := pgserver.Find(pgtest.Newest(t))
	if err != nil {
		t.Fatal(err)
	}
	lapse := fixture.BuildLapse(t)
	b := &bench{
		Options: measure.Options{Rounds: 1, Dir: t.TempDir(), Progress: io.Discard},
		sides:   []side{{"before", lapse}, {"after", lapse}}, plan: []station{{install, scenarios}},
	}
	report, err := b.measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return report
}

func TestTheAuditOfBothSidesIsMeasured(t *testing.T) {
	t.Parallel()
	_, missing := kafkaserver.Find()
	fixture.Missing(t, missing)
	report := measureOnNewest(t, scenario{
		name: "audit", title: "audit", where: onNewest, setup: plain(), due: dueInOne, limit: time.Minute,
		workloads: []workload{{due: 3000, batch: 500}, {due: 300, batch: 500, singly: true}},
	})
	units := []string{"deletes/s", "CPU s/M", "log B/row"}
	if len(report.Figures) != 2*len(units) {
		t.Fatalf("%d figures of %d", len(report.Figures), 2*len(units))
	}
	for i, f := range report.Figures {
		rows := []int64{3000, 300}[i/len(units)]
		if f.Unit != units[i%len(units)] || f.Ratio <= 0 || f.Before == nil || f.After == nil {
			t.Fatalf("%+v", f)
		}
		for _, s := range append(f.Before.Samples, f.After.Samples...) {
			if s.Rows != rows || s.Seconds <= 0 || s.CPU <= 0 || s.Logged <= 0 {
				t.Errorf("%+v, want %d rows", s, rows)
			}
		}
	}
}
