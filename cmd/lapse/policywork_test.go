package main

import (
	"testing"
	"time"

	"lapse/planner"
	"lapse/schemas"
)

// What an armed policy's next run waits for, and how late it is, by what the catalog and executors say.
func TestWhatThePolicysNextRunWaitsFor(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 2, 12, 0, 0, 0, time.UTC)
	past, soon := now, now.Add(90*time.Minute)
	since := now.Add(-4 * time.Minute)
	says := func(state string, silent float64, next *time.Time) process {
		return process{Holder: "h", State: state, Reason: "policy p: policy p: a reason", Since: since, Silent: silent, NextTry: next}
	}
	waits := []process{{State: workWaits, Reason: "no slot"}}
	for name, c := range map[string]struct {
		line      policyLine
		work      []process
		executors []process
		next, lag string
		remarks   int
	}{
		"observing":                     {line: policyLine{}, next: "-", lag: "-"},
		"due":                           {line: policyLine{Next: &past, Lag: 60}, next: "due", lag: "1m"},
		"later":                         {line: policyLine{Next: &soon}, next: "in 1h", lag: "none"},
		"at work":                       {line: policyLine{Next: &past, Lag: 60}, work: []process{says(workDeletes, 0, nil)}, next: "running", lag: "1m", remarks: 1},
		"at work, and stopped there":    {line: policyLine{Next: &past, Lag: 60}, work: []process{says(workStopped, 0, &soon), says(workSlow, 0, nil)}, next: "running", lag: "1m", remarks: 2},
		"stopped":                       {line: policyLine{Next: &past}, work: []process{says(workStopped, 0, &soon)}, next: "retry in 1h", lag: "4m", remarks: 1},
		"stopped, and tried at once":    {line: policyLine{Next: &past}, work: []process{says(workStopped, 0, &past)}, next: "retry now", lag: "4m", remarks: 1},
		"stopped, said by two":          {line: policyLine{Next: &past}, work: []process{says(workStopped, 0, &soon), says(workStopped, 0, &soon)}, next: "retry in 1h", lag: "4m", remarks: 1},
		"waiting":                       {line: policyLine{Next: &past}, work: []process{says(workWaits, 0, nil)}, next: "waits", lag: "4m", remarks: 1},
		"its window is closed":          {line: policyLine{Next: &soon}, work: []process{says(workWaits, 0, &soon)}, next: "in 1h", lag: "none", remarks: 1},
		"stopped, by a silent one":      {line: policyLine{Next: &past}, work: []process{says(workStopped, 40, &soon)}, next: "due", lag: "none"},
		"at work, by a silent one":      {line: policyLine{Next: &past}, work: []process{says(workDeletes, 40, nil)}, next: "due", lag: "none", remarks: 1},
		"nothing is deleted":            {line: policyLine{Next: &past}, executors: waits, next: "waits", lag: "none"},
		"paused for all":                {line: policyLine{Next: &past, PausedForAll: true}, executors: waits, next: "on resume", lag: "-"},
		"restored":                      {line: policyLine{Next: &past, Suspended: "restored"}, next: "on accept", lag: "-"},
		"its table is gone":             {line: policyLine{Next: &past, Lag: 60, Trouble: "gone", Stays: []planner.Stay{{Reason: schemas.HeldByGuard, Detail: "gone"}}}, work: []process{says(workStopped, 0, &soon)}, next: "on apply", lag: "1m", remarks: 1},
		"its breaker is open":           {line: policyLine{Next: &past, Tripped: "much", TrippedAt: &since, Stays: []planner.Stay{{Reason: schemas.HeldByBreaker, Detail: "much"}}}, work: []process{says(workWaits, 0, nil)}, next: "on arm", lag: "4m", remarks: 1},
		"its breaker, and a silent one": {line: policyLine{Next: &past, Tripped: "much", TrippedAt: &since, Stays: []planner.Stay{{Reason: schemas.HeldByBreaker, Detail: "much"}}}, work: []process{says(workWaits, 40, nil)}, next: "on arm", lag: "4m", remarks: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.line.Policy, c.line.State = "p", schemas.Armed
			p := policyState{policyLine: c.line, Work: c.work}
			p.judge(&status{At: now, Executors: c.executors})
			if p.next(now) != c.next || p.lag() != c.lag || len(p.remarks()) != c.remarks {
				t.Errorf("next %q, lag %q, %q; want %q, %q and %d remarks", p.next(now), p.lag(), p.remarks(), c.next, c.lag, c.remarks)
			}
			if (c.line.Tripped != "") != (p.state() == "armed, stopped") && len(c.work) > 0 && c.work[0].State == workWaits {
				t.Errorf("its state is %q", p.state())
			}
			for _, remark := range p.remarks() {
				if len(c.work) > 0 && c.work[0].Silent == 0 && c.line.Trouble+c.line.Tripped == "" && remark != c.work[0].State+": a reason" && remark != "slow: a reason" {
					t.Errorf("it says %q", remark)
				}
			}
		})
	}
}
