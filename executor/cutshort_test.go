package executor

import (
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/planner/record"
)

// An apply between two turns left the rest to the next period, and `lapse status` showed no lag.
func TestWhatARunLeftThatANewVersionCutShortIsDueAtOnce(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		conn := db.Connect(t)
		next := func() time.Time {
			all, err := record.LoadInForce(t.Context(), conn)
			if err != nil || len(all) != 1 {
				t.Fatal(all, err)
			}
			at, err := all[0].NextRun()
			if err != nil {
				t.Fatal(err)
			}
			return at
		}
		sessions(t, db, 60, 30)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 20", "every: 1 hour")))
		w := open(t, db, "p")
		if _, err := w.batch(t, 20); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Release(t.Context(), w.a.Lease); err != nil {
			t.Fatal(err)
		}
		arm(t, db, policies(policy("p", "public.sessions", "batch: 20", "every: 1 hour", "owner: others")))
		if at := next(); at.After(time.Now()) {
			t.Errorf("the next run is at %v, want what is left to be due", at)
		}
		s, err := newExecutor(t, db).Once(t.Context(), nil)
		if err != nil || only(t, s).Deleted != 40 || only(t, s).Outcome != Finished {
			t.Errorf("got %+v, %v; want the 40 rows that are left gone", s.Policies, err)
		}
		if at := next(); !at.After(time.Now()) {
			t.Errorf("after that the next run is at %v already", at)
		}
		if got := one[int](t, db, "select count(*) from sessions"); got != 30 {
			t.Errorf("%d rows are left, want 30", got)
		}
	})
}
