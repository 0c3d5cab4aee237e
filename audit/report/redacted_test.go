package report_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"lapse/audit/report"
	"lapse/internal/reporttest"
)

// drawn is a report of one policy with small numbers, whose sums are right.
func drawn(rng *rand.Rand) *report.Report {
	number := func() int64 {
		switch rng.IntN(4) {
		case 0:
			return 0
		case 1:
			return 5 + rng.Int64N(4)
		default:
			return 1 + rng.Int64N(4)
		}
	}
	p := report.Policy{ID: 7, Name: "secret-name", Table: "secret-table", Verdict: report.Fail, State: "armed", Evidence: "due", Action: "delete"}
	for day := range rng.IntN(6) {
		p.Deleted.Days = append(p.Deleted.Days, report.Day{Day: fmt.Sprintf("2026-10-%02d", 3*day+1), ByRow: number(), ByDrop: number(), Soft: number(), Cascaded: number()})
	}
	p.Zero = []report.ZeroLine{{About: report.Unverified, Figure: report.Number(number())}, {About: report.Overdue, Figure: report.Number(number())}}
	p.Quarantine.AtEnd = report.Number(number())
	f := &p.RollForward
	f.DueStart, f.HeldStart, f.ByUsers = report.Number(number()), report.Number(number()), report.Number(number())
	f.DueEnd, f.HeldEnd = report.Number(number()), report.Number(number())
	f.ByPolicy = report.Number(0)
	r := &report.Report{Kind: "report", Schema: report.Schema, Policies: []report.Policy{p}, Period: report.Period{From: "2026-10-01T00:00:00Z", To: "2026-11-01T00:00:00Z"}}
	r.Log.Name, r.Log.Database = "log", "secret-database"
	balance(r, rng.Int64N(14)-5)
	return r
}

// balance makes the sums right. outside is how much was deleted outside of the two counts, less what was deleted between them and not in the period.
func balance(r *report.Report, outside int64) {
	p := &r.Policies[0]
	d, f := &p.Deleted, &p.RollForward
	d.ByRow, d.ByDrop, d.Soft, d.Cascaded = 0, 0, 0, 0
	for _, day := range d.Days {
		d.ByRow, d.ByDrop, d.Soft, d.Cascaded = d.ByRow+day.ByRow, d.ByDrop+day.ByDrop, d.Soft+day.Soft, d.Cascaded+day.Cascaded
	}
	d.Rows = d.ByRow + d.ByDrop
	f.ByPolicy = report.Number(max(0, d.Rows+d.Soft-outside))
	f.FellDue = report.Number(*f.DueEnd.Value + *f.HeldEnd.Value - *f.DueStart.Value - *f.HeldStart.Value + *f.ByPolicy.Value + *f.ByUsers.Value)
}

func redacted(t *testing.T, r *report.Report) (*report.Redacted, []byte) {
	t.Helper()
	out, err := r.Redact()
	if err != nil {
		t.Fatal(err)
	}
	text, err := out.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := report.ParseRedacted(text); err != nil {
		t.Fatal(err)
	}
	return out, text
}

// The strongest thing that can be said: with any other value from 1 to 4 in a cell, and all sums after it, the bytes are the same. So nobody
// finds the value, whatever they know of the rule.
func TestARedactedReportIsTheSameForEveryNumberBelowFive(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	tried := 0
	for range 60 {
		r := drawn(rng)
		d, p := &r.Policies[0].Deleted, &r.Policies[0]
		outside := d.Rows + d.Soft - *p.RollForward.ByPolicy.Value
		_, before := redacted(t, r)
		cells := []*int64{
			p.Zero[0].Figure.Value, p.Zero[1].Figure.Value, p.Quarantine.AtEnd.Value, p.RollForward.DueStart.Value, p.RollForward.HeldStart.Value,
			p.RollForward.ByUsers.Value, p.RollForward.DueEnd.Value, p.RollForward.HeldEnd.Value,
		}
		for i := range d.Days {
			cells = append(cells, &d.Days[i].ByRow, &d.Days[i].ByDrop, &d.Days[i].Soft, &d.Days[i].Cascaded)
		}
		for _, cell := range cells {
			was := *cell
			if was == 0 || was > 4 {
				continue
			}
			for value := int64(1); value <= 4; value++ {
				*cell = value
				balance(r, outside)
				if _, after := redacted(t, r); !bytes.Equal(before, after) {
					t.Fatalf("%d in place of %d shows:\n%s\n%s", value, was, before, after)
				}
				tried++
			}
			*cell = was
			balance(r, outside)
		}
		for _, secret := range []string{"secret"} {
			if bytes.Contains(before, []byte(secret)) {
				t.Fatalf("%s is in %s", secret, before)
			}
		}
	}
	if tried < 500 {
		t.Errorf("only %d values were tried", tried)
	}
}

// An attacker who has the edition and knows every sum finds no number below five.
func TestASolverFindsNoNumberBelowFive(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	small := 0
	for range 150 {
		r := drawn(rng)
		out, _ := redacted(t, r)
		small += reporttest.Attack(t, &out.Policies[0], &r.Policies[0])
	}
	if small < 400 {
		t.Errorf("there were only %d numbers to find", small)
	}
}

func TestARedactedReportIsOfOneMonthAndAllPolicies(t *testing.T) {
	t.Parallel()
	r := drawn(rand.New(rand.NewPCG(5, 6)))
	r.Only = []string{"secret-name"}
	if _, err := r.Redact(); err == nil {
		t.Error("one of a single policy was made")
	}
	r.Only = nil
	for _, period := range []report.Period{
		{From: "2026-10-01T00:00:00Z", To: "2026-10-16T00:00:00Z"},
		{From: "2026-10-01T00:00:01Z", To: "2026-11-01T00:00:00Z"},
		{From: "2026-10-01T00:00:00Z", To: "2026-12-01T00:00:00Z"},
		{From: "2026-10-02T00:00:00Z", To: "2026-11-02T00:00:00Z"},
	} {
		r.Period = period
		if _, err := r.Redact(); err == nil {
			t.Errorf("one of %v was made", period)
		}
	}
}
