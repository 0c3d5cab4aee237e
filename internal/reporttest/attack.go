// Package reporttest attacks redacted reports: what an attacker who knows every rule and every sum finds out of one.
package reporttest

import (
	"testing"

	"lapse/audit/report"
)

// interval is what an attacker knows of a number.
type interval struct{ least, most int64 }

const unbounded = int64(1) << 40

// equation says that what is weighed adds up to 0.
type equation map[string]int64

// attack is what is known of one policy's numbers, beside the truth.
type attack struct {
	known     map[string]interval
	truth     map[string]int64
	equations []equation
}

// Attack solves for the numbers of one policy of a redacted report, and fails the test where one from 1 to 4 is found. It says how many of those
// there were.
func Attack(t testing.TB, p *report.RedactedPolicy, is *report.Policy) (small int) {
	t.Helper()
	a := &attack{known: map[string]interval{}, truth: map[string]int64{}}
	a.deleted(&p.Deleted, &is.Deleted)
	a.rollForward(&p.RollForward, &is.RollForward)
	for i := range p.Zero {
		a.figure("zero "+string(p.Zero[i].About), p.Zero[i].Figure, is.Zero[i].Figure)
	}
	a.figure("quarantine", p.Quarantine, is.Quarantine.AtEnd)
	a.solve()
	for name, k := range a.known {
		truth := a.truth[name]
		switch {
		case k.least > truth || k.most < truth:
			t.Fatalf("the solver is wrong: %s is %d and not within %v", name, truth, k)
		case truth == 0 || max(truth, -truth) > 4 || name == "fell" || truth < 0 && name != "outside":
		case k.least == k.most:
			t.Fatalf("%s of %s is found: %d", name, p.Code, truth)
		default:
			small++
		}
	}
	return small
}

// say adds a number as it is shown.
func (a *attack) say(name string, f report.Figure, is int64) {
	k := interval{0, unbounded}
	if name == "fell" {
		k.least = -unbounded
	}
	if f.Value != nil {
		k = interval{*f.Value, *f.Value}
	}
	if f.AtLeast != nil {
		k.least = *f.AtLeast
	}
	if f.AtMost != nil {
		k.most = *f.AtMost
	}
	a.known[name], a.truth[name] = k, is
}

// figure is say of a number that may not have been assessed.
func (a *attack) figure(name string, f, is report.Figure) {
	if is.Value != nil {
		a.say(name, f, *is.Value)
	}
}

func (a *attack) deleted(d *report.RedactedDeleted, of *report.Deleted) {
	a.say("rows", d.Rows, of.Rows)
	a.say("row", d.ByRow, of.ByRow)
	a.say("drop", d.ByDrop, of.ByDrop)
	a.say("soft", d.Soft, of.Soft)
	a.say("cascaded", d.Cascaded, of.Cascaded)
	days := map[string]report.Day{}
	for _, day := range of.Days {
		days[day.Day] = day
	}
	sums := map[string]equation{"row": {"row": -1}, "drop": {"drop": -1}, "soft": {"soft": -1}, "cascaded": {"cascaded": -1}}
	for _, day := range d.Days {
		was := days[day.Day]
		for name, cell := range map[string]struct {
			f  report.Figure
			is int64
		}{"row": {day.ByRow, was.ByRow}, "drop": {day.ByDrop, was.ByDrop}, "soft": {day.Soft, was.Soft}, "cascaded": {day.Cascaded, was.Cascaded}} {
			a.say(name+day.Day, cell.f, cell.is)
			sums[name][name+day.Day] = 1
		}
	}
	a.equations = append(a.equations, equation{"rows": -1, "row": 1, "drop": 1}, sums["row"], sums["drop"], sums["soft"], sums["cascaded"])
}

func (a *attack) rollForward(f *report.RedactedRollForward, is *report.RollForward) {
	if is.FellDue.Value == nil {
		return
	}
	a.figure("start", f.DueStart, is.DueStart)
	a.figure("heldstart", f.HeldStart, is.HeldStart)
	a.figure("policy", f.ByPolicy, is.ByPolicy)
	a.figure("users", f.ByUsers, is.ByUsers)
	a.figure("end", f.DueEnd, is.DueEnd)
	a.figure("heldend", f.HeldEnd, is.HeldEnd)
	a.figure("fell", f.FellDue, is.FellDue)
	// What went between the counts is what went in the period, but for what was outside of the one or the other.
	outside := a.truth["rows"] + a.truth["soft"] - a.truth["policy"]
	if a.truth["outside"] = outside; outside >= 0 {
		a.known["outside"] = interval{0, unbounded}
	} else {
		a.known["outside"] = interval{-unbounded, -1}
	}
	a.equations = append(a.equations,
		equation{"fell": -1, "end": 1, "heldend": 1, "start": -1, "heldstart": -1, "policy": 1, "users": 1},
		equation{"outside": -1, "rows": 1, "soft": 1, "policy": -1})
}

// solve narrows all intervals until nothing more follows.
func (a *attack) solve() {
	for again := true; again; {
		again = false
		for _, e := range a.equations {
			for x, weight := range e {
				var least, most int64 // of what the others add up to
				for other, w := range e {
					if k := a.known[other]; other != x && w > 0 {
						least, most = least+w*k.least, most+w*k.most
					} else if other != x {
						least, most = least+w*k.most, most+w*k.least
					}
				}
				low, high := -most, -least // of weight * x; every weight is 1 or -1
				if weight < 0 {
					low, high = least, most
				}
				k := a.known[x]
				if narrower := (interval{max(k.least, low), min(k.most, high)}); narrower != k {
					a.known[x], again = narrower, true
				}
			}
		}
	}
}
