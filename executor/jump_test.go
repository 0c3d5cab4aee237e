package executor

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"lapse/executor/guard"
	"lapse/internal/fixture"
	"lapse/internal/pgtest"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/schemas"
)

// due makes so many rows that are due, each of that age.
func due(t testing.TB, db *pgtest.DB, rows int, age string) {
	t.Helper()
	owned(t, db, fmt.Sprintf("insert into sessions select m.last + g, %s from generate_series(1, %d) g, (select max(id) as last from sessions) m", age, rows), "analyze sessions")
}

const fortyDays = "now() - interval '40 days'"

// trips runs one pass, and wants that nothing is deleted for a reason.
func trips(t testing.TB, db *pgtest.DB, e *Executor, reason guard.Reason) *guard.Refusal {
	t.Helper()
	before := one[int](t, db, "select count(*) from sessions")
	s, err := e.Once(t.Context(), []schemas.PolicyName{"p"})
	var refusal *guard.Refusal
	if !errors.As(err, &refusal) || refusal.Reason != reason || only(t, s).Outcome != Stopped {
		t.Fatalf("got %+v, %v, want that it stops for %s", s, err, reason)
	}
	if after := one[int](t, db, "select count(*) from sessions"); after != before {
		t.Errorf("%d rows were deleted", before-after)
	}
	return refusal
}

func goes(t testing.TB, e *Executor, rows int64, why string) {
	t.Helper()
	if s := only(t, once(t, e, "p")); s.Deleted != rows {
		t.Fatalf("%s: %+v, want that %d rows are deleted", why, s, rows)
	}
}

func TestASuddenJumpAgainstTheLastRunsDeletesNothingUntilSomebodySaysYes(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 12_000, 5)
		arm(t, db, policies(policy("p", "public.sessions", "pace: unlimited")))
		e := newExecutor(t, db)
		goes(t, e, 12_000, "the first run after somebody armed it")
		// A day of each of three runs, of 500 rows.
		db.Exec(t, "alter table lapse.policy_state disable trigger all", "update lapse.policy_state set changed_at = changed_at - interval '9 days'",
			"update lapse.shard set deleted = 500")
		for range 2 {
			due(t, db, 500, fortyDays)
			goes(t, e, 500, "as many as usual")
		}
		due(t, db, 9_900, fortyDays)
		goes(t, e, 9_900, "fewer than anybody minds")
		db.Exec(t, "update lapse.shard set deleted = 500")
		due(t, db, 12_000, fortyDays)
		refusal := trips(t, db, e, guard.SuddenJump)
		if want := "12000 rows were due"; !strings.Contains(refusal.Detail, want) || !strings.Contains(refusal.Detail, "10000 were to be expected") {
			t.Errorf("it says %q", refusal.Detail)
		}
		if got := counted(t, e, "lapse_limit_reached_total", "p", string(guard.SuddenJump)); got != 1 {
			t.Errorf("the metric says %v", got)
		}
		trips(t, db, newExecutor(t, db), guard.SuddenJump)
		db.Exec(t, "update lapse.breaker set accepted = 1000, accepted_at = now()")
		goes(t, newExecutor(t, db), 1000, "somebody let these go")
		trips(t, db, newExecutor(t, db), guard.SuddenJump)
		db.Exec(t, "update lapse.breaker set accepted = 20000, accepted_at = now()")
		goes(t, newExecutor(t, db), 11_000, "somebody said yes to more than are due")
	})
}

func TestWhatIsToBeExpectedGrowsWithTheTimeWithoutRuns(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 5, 5)
		arm(t, db, policies(policy("p", "public.sessions", "pace: unlimited")))
		db.Exec(t, "alter table lapse.policy_state disable trigger all", "update lapse.policy_state set changed_at = changed_at - interval '9 days'")
		e := newExecutor(t, db)
		for range 3 {
			goes(t, e, 5, "a few")
			due(t, db, 5, fortyDays)
		}
		due(t, db, 10_500, fortyDays)
		// 700 rows on each of three days, and the last of them is three days ago: 3 x 700 x 3 / 2 are due by now.
		db.Exec(t, "update lapse.shard set deleted = 700", `update lapse.run set started_at = now() - (6 - number) * interval '1 day'`)
		goes(t, e, 10_505, "three days' worth")
		due(t, db, 10_505, fortyDays)
		db.Exec(t, "update lapse.shard set deleted = 700", `update lapse.run set started_at = now() - (4 - number) * interval '1 minute'`)
		trips(t, db, e, guard.SuddenJump)
		setLimits(t, db, `{"max_fraction": 1}`)
		db.Exec(t, "delete from lapse.breaker")
		goes(t, newExecutor(t, db), 10_505, "its owner has said how much may go")
	})
}

func TestAJumpThatIsASmallPartOfTheTableIsNone(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 5, 130_000)
		arm(t, db, policies(policy("p", "public.sessions", "pace: unlimited")))
		e := newExecutor(t, db)
		goes(t, e, 5, "a few")
		due(t, db, 12_000, fortyDays)
		goes(t, e, 12_000, "less than a tenth")
	})
}

func TestDueTimesInTheAbsurdPastDeleteNothingUntilSomebodySaysYes(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 1_000, 5)
		arm(t, db, policies(policy("p", "public.sessions", "pace: unlimited")))
		e := newExecutor(t, db)
		due(t, db, 900, "to_timestamp(0)")
		goes(t, e, 1_900, "fewer than anybody minds")
		due(t, db, 3_000, fortyDays)
		due(t, db, 1_500, "to_timestamp(g)")
		goes(t, e, 4_500, "a third of what is due")
		due(t, db, 500, fortyDays)
		due(t, db, 1_500, "'0001-01-01'::timestamptz")
		if refusal := trips(t, db, e, guard.AbsurdPast); !strings.Contains(refusal.Detail, "of 2000 rows that were due") || !strings.Contains(refusal.Detail, " 1500 expired by a time before 1971") {
			t.Errorf("it says %q", refusal.Detail)
		}
		setLimits(t, db, `{"max_fraction": 1}`)
		db.Exec(t, "delete from lapse.breaker")
		trips(t, db, newExecutor(t, db), guard.AbsurdPast) // whatever part of the table it is
		db.Exec(t, "update lapse.breaker set accepted = due, accepted_at = now()")
		goes(t, newExecutor(t, db), 2_000, "somebody said yes")
	})
}

func TestRowsThatAreKeptForGenerationsMayBeAsOld(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 0, 5)
		due(t, db, 1_500, "'1960-01-01'::timestamptz")
		arm(t, db, policies(policy("p", "public.sessions", "pace: unlimited")))
		trips(t, db, newExecutor(t, db), guard.AbsurdPast)
		arm(t, db, policies(fixture.Policy("p", "public.sessions", "at", "60 years", "state: armed")))
		goes(t, newExecutor(t, db), 1_500, "after sixty years")
	})
}

func TestAnEditDoesNotMakeTheBreakerForgetTheRuns(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 5, 5)
		edit := func(more ...string) {
			arm(t, db, policies(policy("p", "public.sessions", append(more, "pace: unlimited")...)))
		}
		edit("every: 1 hour")
		goes(t, newExecutor(t, db), 5, "a few")
		due(t, db, 12_000, fortyDays)
		edit("every: 2 hours")
		trips(t, db, newExecutor(t, db), guard.SuddenJump)
		edit("every: 1 minute")
		trips(t, db, newExecutor(t, db), guard.SuddenJump)
		db.Exec(t, "delete from lapse.breaker")
		trips(t, db, newExecutor(t, db), guard.SuddenJump) // judged, not only kept

		// Twelve minutes' rows are due an hour after the last run, as that run's version had it, and not all at once as the next one has it.
		db.Exec(t, "delete from lapse.breaker", "alter table lapse.policy_state disable trigger all",
			"update lapse.policy_state set changed_at = changed_at - interval '9 days'", "update lapse.shard set deleted = 1000",
			"update lapse.run set version = 3, started_at = now() - interval '12 minutes'", "update lapse.shard set version = 3")
		edit("every: 30 days")
		goes(t, newExecutor(t, db), 12_000, "what falls due in so long")

		// The rest of a run that an edit cuts short: what was due when it began is expected.
		db.Exec(t, "update lapse.shard set deleted = 5")
		cut := func(counted string) {
			list, err := record.LoadInForce(t.Context(), connectTo(t, db))
			if err != nil {
				t.Fatal(err)
			}
			r, err := run.Open(t.Context(), db.ConnectAs(t, schemas.RolesFor(schemas.DefaultRolePrefix).Executor), &list[0], time.Now, run.Options{})
			if err != nil {
				t.Fatal(err)
			}
			db.Exec(t, fmt.Sprintf("select lapse.note_due('%s', %s)", r.ID, counted))
		}
		cut("2000")
		edit("every: 31 days")
		due(t, db, 21_000, fortyDays)
		trips(t, db, newExecutor(t, db), guard.SuddenJump)
		db.Exec(t, "delete from lapse.breaker", "update lapse.run set due = 2500 where due = 2000")
		goes(t, newExecutor(t, db), 21_000, "ten times what was due when the run began")
		db.Exec(t, "update lapse.shard set deleted = 5")
		cut("null")
		edit("every: 32 days")
		due(t, db, 21_000, fortyDays)
		goes(t, newExecutor(t, db), 21_000, "nobody has counted what a person said yes to")
	})
}
