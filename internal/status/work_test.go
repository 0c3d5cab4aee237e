package status

import (
	"testing"
	"time"

	"lapse/planner/record"
	"lapse/schemas"
)

// What an armed policy's next run waits for, and how late it is, by what the catalog and executors say.
func TestWhatThePolicysNextRunWaitsFor(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 2, 12, 0, 0, 0, time.UTC)
	past, soon := now, now.Add(90*time.Minute)
	since := now.Add(-4 * time.Minute)
	says := func(state string, silent float64, next *time.Time) Process {
		return Process{Holder: "h", State: state, Reason: "policy p: policy p: a reason", Since: since, Silent: silent, NextTry: next}
	}
	waits := []Process{{State: workWaits, Reason: "no slot"}}
	for name, c := range map[string]struct {
		line      Line
		work      []Process
		executors []Process
		next, lag string
		remarks   int
	}{
		"observing":                     {line: Line{}, next: "-", lag: "-"},
		"due":                           {line: Line{Next: &past, Lag: 60}, next: "due", lag: "1m"},
		"later":                         {line: Line{Next: &soon}, next: "in 1h", lag: "none"},
		"at work":                       {line: Line{Next: &past, Lag: 60}, work: []Process{says(workDeletes, 0, nil)}, next: "running", lag: "1m", remarks: 1},
		"at work, and stopped there":    {line: Line{Next: &past, Lag: 60}, work: []Process{says(workStopped, 0, &soon), says(workSlow, 0, nil)}, next: "running", lag: "1m", remarks: 2},
		"stopped":                       {line: Line{Next: &past}, work: []Process{says(workStopped, 0, &soon)}, next: "retry in 1h", lag: "4m", remarks: 1},
		"stopped, and tried at once":    {line: Line{Next: &past}, work: []Process{says(workStopped, 0, &past)}, next: "retry now", lag: "4m", remarks: 1},
		"stopped, said by two":          {line: Line{Next: &past}, work: []Process{says(workStopped, 0, &soon), says(workStopped, 0, &soon)}, next: "retry in 1h", lag: "4m", remarks: 1},
		"waiting":                       {line: Line{Next: &past}, work: []Process{says(workWaits, 0, nil)}, next: "waits", lag: "4m", remarks: 1},
		"its window is closed":          {line: Line{Next: &soon}, work: []Process{says(workWaits, 0, &soon)}, next: "in 1h", lag: "none", remarks: 1},
		"stopped, by a silent one":      {line: Line{Next: &past}, work: []Process{says(workStopped, 40, &soon)}, next: "due", lag: "none"},
		"at work, by a silent one":      {line: Line{Next: &past}, work: []Process{says(workDeletes, 40, nil)}, next: "due", lag: "none", remarks: 1},
		"nothing is deleted":            {line: Line{Next: &past}, executors: waits, next: "waits", lag: "none"},
		"paused for all":                {line: Line{Next: &past, PausedForAll: true}, executors: waits, next: "on resume", lag: "-"},
		"restored":                      {line: Line{Next: &past, Suspended: "restored"}, next: "on accept", lag: "-"},
		"its table is gone":             {line: Line{Next: &past, Lag: 60, Trouble: "gone", Stays: []record.Stay{{Reason: schemas.HeldByGuard, Detail: "gone"}}}, work: []Process{says(workStopped, 0, &soon)}, next: "on apply", lag: "1m", remarks: 1},
		"its breaker is open":           {line: Line{Next: &past, Tripped: "much", TrippedAt: &since, Stays: []record.Stay{{Reason: schemas.HeldByBreaker, Detail: "much"}}}, work: []Process{says(workWaits, 0, nil)}, next: "on arm", lag: "4m", remarks: 1},
		"its breaker, and a silent one": {line: Line{Next: &past, Tripped: "much", TrippedAt: &since, Stays: []record.Stay{{Reason: schemas.HeldByBreaker, Detail: "much"}}}, work: []Process{says(workWaits, 40, nil)}, next: "on arm", lag: "4m", remarks: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.line.Policy, c.line.State = "p", schemas.Armed
			p := Policy{Line: c.line, Work: c.work}
			p.judge(&Status{At: now, Executors: c.executors})
			if p.NextText(now) != c.next || p.LagText() != c.lag || len(p.Remarks()) != c.remarks {
				t.Errorf("next %q, lag %q, %q; want %q, %q and %d remarks", p.NextText(now), p.LagText(), p.Remarks(), c.next, c.lag, c.remarks)
			}
			if (c.line.Tripped != "") != (p.StateText() == "armed, stopped") && len(c.work) > 0 && c.work[0].State == workWaits {
				t.Errorf("its state is %q", p.StateText())
			}
			for _, remark := range p.Remarks() {
				if len(c.work) > 0 && c.work[0].Silent == 0 && c.line.Trouble+c.line.Tripped == "" && remark != c.work[0].State+": a reason" && remark != "slow: a reason" {
					t.Errorf("it says %q", remark)
				}
			}
		})
	}
}
