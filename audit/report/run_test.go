package report_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"lapse/audit/report"
)

// ofRun makes the report of a period with one run counted by itself.
func (l *log) ofRun(from, to time.Time, run uuid.UUID) (*report.Report, error) {
	l.t.Helper()
	all := l.parsed()
	bounds, err := report.NewBounds(report.Question{From: from, To: to, Run: run})
	if err != nil {
		return nil, err
	}
	l.pass(all, bounds.Record, bounds.Checkpoint)
	if err := bounds.End(); err != nil {
		return nil, err
	}
	count := bounds.Count()
	l.pass(all, count.Record, nil)
	return count.Report()
}

func TestARunIsCountedByItself(t *testing.T) {
	t.Parallel()
	run, other := uuid.MustParse("0198f1d0-0000-7000-8000-000000000007"), uuid.New()
	of := regexp.MustCompile(`"run":"[^"]*"`)
	l := newLog(t).policy(minute(1), 1, "sessions", 100, dueTerms)
	batch := func(at, rows int, verdict string, id uuid.UUID) {
		l.batch(minute(at), "sessions", 100, rows, rows, verdict, allDue(rows))
		last := &l.records[len(l.records)-1]
		*last = of.ReplaceAllString(*last, fmt.Sprintf(`"run":"%s"`, id))
	}
	batch(2, 7, "match", run)
	batch(3, 100, "match", other)
	batch(4, 5, "mismatch", run)
	l.beat(minute(5))
	batch(6, 1, "match", other)
	l.beat(minute(7))
	r, err := l.ofRun(minute(0), minute(5), run)
	if err != nil {
		t.Fatal(err)
	}
	want := report.Run{
		Run: run.String(), Policy: "sessions", Version: 1, Cutoff: report.At(minute(2)), First: report.At(minute(2)), Last: report.At(minute(4)), FirstLeaf: 5, LastLeaf: 7,
		Batches: 2, ByRow: 12, Due: 12, Mismatches: 1,
	}
	if r.Run == nil || *r.Run != want {
		t.Errorf("%+v, want %+v", r.Run, want)
	}
	written, err := r.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	checkSchema(t, written)
	if again, err := report.Parse(written); err != nil || *again.Run != want {
		t.Errorf("read again: %v", err)
	}
	for _, c := range []struct {
		from, to int
		run      uuid.UUID
		says     string
	}{
		{3, 5, run, "outside the period"},
		{0, 3, run, "outside the period"},
		{0, 5, uuid.New(), "no deletion of run"},
		{5, 7, run, "outside the period"},
	} {
		if _, err := l.ofRun(minute(c.from), minute(c.to), c.run); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("from minute %d to %d: %v, want %q", c.from, c.to, err, c.says)
		}
	}
	if r := l.must(minute(0), minute(5)); r.Run != nil {
		t.Error("nobody asked for a run")
	}
}
