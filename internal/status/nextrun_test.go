package status

import (
	"testing"
	"time"

	"lapse/planner/expiry"
	"lapse/planner/record"
	"lapse/planner/schedule"
)

// While a policy's window is closed its next run is when it opens. It is behind its schedule only by what it might have done.
func TestTheNextRunIsWhenTheWindowOpens(t *testing.T) {
	t.Parallel()
	window, err := schedule.ParseWindow("22:00-06:00 UTC")
	if err != nil {
		t.Fatal(err)
	}
	at := func(hour, minute int) time.Time { return time.Date(2026, 5, 2, hour, minute, 0, 0, time.UTC) }
	hourly := schedule.Schedule{Every: expiry.Interval{Microseconds: 3600e6}}
	nightly := hourly
	nightly.Window = &window
	for name, c := range map[string]struct {
		schedule  schedule.Schedule
		last, now time.Time
		runs      bool // the last run is not over
		next      time.Time
		lag       time.Duration
	}{
		"no window, due":               {hourly, at(4, 30), at(12, 0), false, at(5, 30), 390 * time.Minute},
		"no window, later":             {hourly, at(11, 30), at(12, 0), false, at(12, 30), 0},
		"open, due":                    {nightly, at(3, 0), at(5, 0), false, at(4, 0), time.Hour},
		"open, later":                  {nightly, at(4, 30), at(5, 0), false, at(5, 30), 0},
		"closed, due while it was":     {nightly, at(5, 30), at(12, 0), false, at(22, 0), 0},
		"closed, due before it closed": {nightly, at(4, 30), at(12, 0), false, at(22, 0), 390 * time.Minute},
		"closed, a run half done":      {nightly, at(5, 45), at(12, 0), true, at(22, 0), 375 * time.Minute},
		"open again, a run half done":  {nightly, at(5, 45), at(22, 15), true, at(5, 45), 990 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &record.InForce{Schedule: c.schedule, LastRun: &record.Run{StartedAt: c.last}}
			if c.runs {
				p.Unfinished = p.LastRun
			}
			next, lag, err := nextRun(p, c.now)
			if err != nil || !next.Equal(c.next) || lag != c.lag {
				t.Errorf("next run %s, %s behind, %v; want %s, %s", next, lag, err, c.next, c.lag)
			}
		})
	}
}
