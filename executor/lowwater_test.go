package executor

import (
	"fmt"
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/internal/setup/holds"
	"lapse/internal/setup/tables"
	"lapse/planner/hold"
	"lapse/schemas"
)

// What was kept for a reason goes at the next run after the reason has gone, wherever the scan was to begin.
func TestAReleasedOrForgivenRowBehindTheMarkGoesAtTheNextRun(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 0, 10)
		arm(t, db, policies(policy("p", "public.sessions", "pace: unlimited")))
		e, s := newExecutor(t, db), holdSession(t, db)
		// marked deletes rows enough for a mark, and puts one below it.
		marked := func() {
			t.Helper()
			owned(t, db, "insert into sessions select 1000 + g, now() - interval '40 days' from generate_series(1, 1500) g")
			if got := only(t, once(t, e, "p")); got.Deleted != 1500 {
				t.Fatalf("%+v", got)
			}
			db.Exec(t, "update lapse.low_water set deleted = lapse.worth_a_mark()") // as if more had gone
			owned(t, db, "insert into sessions values (7000, now() - interval '50 days')")
			wantDeleted(t, e, "below the mark", 0)
		}
		for _, end := range []string{"released at once", "released, and cooled off"} {
			marked()
			id := placeHold(t, s, hold.Request{Table: "public.sessions", Keys: [][]string{{"7000"}}})
			wantDeleted(t, e, "while it is held", 0)
			// As if the hold had been placed, and a pass gone by, before the row came to lie below a mark.
			const back = `alter table lapse.hold_state disable trigger all; update lapse.hold_state set changed_at = changed_at - interval '1 day'%s; alter table lapse.hold_state enable trigger all`
			db.Exec(t, fmt.Sprintf(back, ""))
			wantDeleted(t, e, "while it is held, below the mark", 0)
			if end == "released at once" {
				if err := holds.Release(t.Context(), s, id, 0, "a test"); err != nil {
					t.Fatal(err)
				}
			} else {
				if err := holds.Release(t.Context(), s, id, time.Hour, "a test"); err != nil {
					t.Fatal(err)
				}
				db.Exec(t, fmt.Sprintf(back, ", enforced_until = case when state = 'releasing' then clock_timestamp() end"))
			}
			wantDeleted(t, e, end, 1)
			db.Exec(t, fmt.Sprintf(back, ", enforced_until = enforced_until - interval '1 day'"), "delete from lapse.low_water")
		}
		marked()
		db.Exec(t, `insert into lapse.quarantine (policy_id, leaf, digest, key, sqlstate, retry_at)
			values (1, 'public.sessions'::regclass, sha256('1'), array['7000'], '23503', clock_timestamp() + interval '1 hour')`)
		if n, err := tables.ForgiveQuarantined(t.Context(), s, "p", [][]string{{"7000"}}); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		wantDeleted(t, e, "forgiven", 1)
	})
}

// wantDeleted brings the policy to the end of a run of its schedule's, for which marks count.
func wantDeleted(t *testing.T, e *Executor, when string, want int64) {
	t.Helper()
	s, err := e.once(t.Context(), &onceGoal{Executor: e, names: []schemas.PolicyName{"p"}, begun: e.now()})
	if err != nil {
		t.Fatal(err)
	}
	if got := only(t, s); got.Deleted != want {
		t.Errorf("%s: %d rows were deleted, want %d", when, got.Deleted, want)
	}
}

func TestARunThatSomebodyAsksForFindsRowsBelowAMarkToo(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 1500, 10)
		arm(t, db, policies(policy("p", "public.sessions", "pace: unlimited", "every: 1 second")))
		e := newExecutor(t, db)
		wantDeleted(t, e, "at first", 1500)
		db.Exec(t, "update lapse.low_water set deleted = 1000000000") // as if more had gone
		owned(t, db, "insert into sessions select 10000 + g, now() - interval '50 days' from generate_series(1, 3) g")
		wantDeleted(t, e, "by the schedule", 0)
		if got := only(t, once(t, e, "p")); got.Deleted != 3 {
			t.Errorf("asked for by name: %+v", got)
		}
		db.Exec(t, "update lapse.low_water set deleted = 1000000000, full_at = clock_timestamp()")
		owned(t, db, "insert into sessions select 20000 + g, now() - interval '50 days' from generate_series(1, 3) g",
			"insert into sessions values (30000, now() - interval '50 days')")
		eventually(t, "the policy is due", func() bool {
			s := once(t, e)
			return len(s.Policies) == 1 && s.Policies[0].Deleted == 4
		})
	})
}

// Nothing is due, and a look from the start takes long: one such look is enough for a while.
func TestALookThatFoundNothingLetsTheMarkCountAgain(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 1500, 10)
		arm(t, db, policies(policy("p", "public.sessions", "pace: unlimited")))
		e := newExecutor(t, db)
		wantDeleted(t, e, "at first", 1500)
		counts := func() bool {
			return one[bool](t, db, "select exists (select from lapse.low_mark(1, 1, 'public.sessions'::regclass))")
		}
		db.Exec(t, "update lapse.low_water set deleted = lapse.worth_a_mark()")
		if !counts() {
			t.Fatal("the mark does not count")
		}
		db.Exec(t, "update lapse.low_water set full_at = full_at - interval '11 seconds'") // 100,000 rows are worth ten
		if counts() {
			t.Fatal("the mark counts for longer than wading is worth")
		}
		wantDeleted(t, e, "nothing is due", 0)
		if !counts() {
			t.Error("the mark does not count after a look from the start")
		}
		db.Exec(t, "update lapse.low_water set full_at = full_at - interval '5 seconds'")
		before := one[time.Time](t, db, "select full_at from lapse.low_water")
		p := one[string](t, db, "select (select lapse.passed(1, 1, '0 seconds'))::text")
		if after := one[time.Time](t, db, "select full_at from lapse.low_water"); !after.Equal(before) {
			t.Errorf("a look that began at the mark moved it from %v to %v%s", before, after, p)
		}
	})
}
