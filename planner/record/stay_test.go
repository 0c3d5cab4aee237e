package record

import (
	"testing"
	"time"

	"lapse/planner/expiry"
	"lapse/planner/schedule"
	"lapse/schemas"
)

// While a lock keeps the policy from its table, and from counting, each retry is a run of its own. What is due does not grow younger by that.
func TestRunsThatALockKeepsFromTheTableDoNotMakeWhatIsDueYounger(t *testing.T) {
	t.Parallel()
	at := func(minute int) time.Time { return time.Date(2026, 5, 2, 12, minute, 0, 0, time.UTC) }
	success, oldest, left := at(10), at(8), int64(3)
	for name, c := range map[string]struct {
		is   InForce
		want time.Duration
	}{
		"one run":                       {InForce{Success: &success, LastRun: &Run{StartedAt: at(15)}, Ended: &EndedRun{At: at(16)}}, 45 * time.Minute},
		"a later run":                   {InForce{Success: &success, LastRun: &Run{StartedAt: at(55)}, Ended: &EndedRun{At: at(56)}}, 45 * time.Minute},
		"one is under way":              {InForce{Success: &success, LastRun: &Run{StartedAt: at(58)}, Unfinished: &Run{StartedAt: at(58)}}, 45 * time.Minute},
		"none ever tried all":           {InForce{LastRun: &Run{StartedAt: at(55)}, Ended: &EndedRun{At: at(56)}}, time.Hour},
		"a look found nothing later":    {InForce{Success: &success, LookedAt: at(40), LastRun: &Run{StartedAt: at(55)}, Ended: &EndedRun{At: at(56)}}, 15 * time.Minute},
		"the last one counted":          {InForce{Success: &success, LastRun: &Run{StartedAt: at(55)}, Ended: &EndedRun{At: at(56), LeftDue: &left, Watermark: &oldest}}, 52 * time.Minute},
		"nothing is due":                {InForce{Success: &success, LookedAt: at(59)}, 0},
		"it is paused, and not counted": {InForce{State: schemas.Paused, Success: &success, LastRun: &Run{StartedAt: at(15)}, Ended: &EndedRun{At: at(16)}}, 0},
	} {
		c.is.Schedule, c.is.Since = schedule.Schedule{Every: expiry.Interval{Microseconds: 300e6}}, at(0)
		if c.is.State == "" {
			c.is.State = schemas.Armed
		}
		if got := c.is.OverdueFor(at(60)); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// A row that was locked is tried again soon, but not where the run has deleted all that it may: another would delete as much again.
func TestALimitedRunIsFollowedAtItsTimeAlone(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 5, 2, 12, 0, 0, 0, time.UTC)
	for limited, want := range map[bool]time.Duration{false: leftBehindPause, true: time.Hour} {
		is := InForce{State: schemas.Armed, LastRun: &Run{StartedAt: began}, LeftBehind: true, Ended: &EndedRun{At: began.Add(time.Minute), Limited: limited}}
		is.Schedule, is.Since = schedule.Schedule{Every: expiry.Interval{Microseconds: 3600e6}}, began
		next, err := is.NextRun()
		if err != nil || next.Sub(began) != want {
			t.Errorf("limited %v: the next run is %v later, %v; want %v", limited, next.Sub(began), err, want)
		}
	}
}
