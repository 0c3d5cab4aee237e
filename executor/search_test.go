package executor

import (
	"fmt"
	"testing"
	"time"

	"lapse/executor/batch"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// searched runs a search for row bad of n, which makes batches fail, and returns how many there were and how many of them failed.
func searched(n, bad int, slow bool) (batches, failed int, found bool) {
	cursor, s := 0, &search{}
	s.failed(n, slow)
	for ; cursor < n && batches < 1000; batches++ {
		o := s.next(batch.Order{Limit: n})
		inside := bad >= cursor && bad < cursor+o.Limit
		if inside && !o.StepOver {
			failed++
			s.failed(o.Limit, slow)
			continue
		}
		found = found || inside
		picked := min(o.Limit, n-cursor)
		s.through(o, int64(picked), !inside)
		cursor += picked
	}
	return batches, failed, found
}

func TestASearchTakesTheLogarithm(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 300; n++ {
		for bad := range n {
			batches, _, found := searched(n, bad, false)
			if most := 4 * len(fmt.Sprintf("%b", n)); batches > most || !found {
				t.Fatalf("row %d of %d: %d batches, found: %v; want %d at most", bad, n, batches, found, most)
			}
		}
	}
}

// A batch that takes too long costs seconds: of those there are no more than digits of base 16, and of the others a few dozens.
func TestASearchForARowThatTakesTooLongFailsSeldom(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2, 15, 16, 17, 100, 255, 300, 5000, 20000} {
		for bad := range n {
			if n > 1000 && bad%7 != 0 {
				continue
			}
			batches, failed, found := searched(n, bad, true)
			if digits := len(fmt.Sprintf("%x", n)); failed > digits || batches > 64*digits || !found {
				t.Fatalf("row %d of %d: %d batches, %d failed, found: %v", bad, n, batches, failed, found)
			}
		}
	}
}

// One row of a large batch has a trigger that does not end. It is found in few statement timeouts, named with its trigger, and all others go
// in batches that are soon as large as before. Where each row is slow, none is in quarantine.
func TestARowWithASlowTriggerIsFoundInFewTimeouts(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 3000, 5)
		owned(t, db, "create function slow() returns trigger language plpgsql as $$ begin if old.id = 2000 then perform pg_sleep(60); end if; return old; end $$",
			"create trigger slow before delete on sessions for each row execute function slow()",
			"create table others (id bigint primary key, at timestamptz)", "create index on others (at, id)",
			"insert into others select g, now() - interval '40 days' from generate_series(1, 150) g",
			"create function idle() returns trigger language plpgsql as $$ begin perform pg_sleep(0.01); return old; end $$",
			"create trigger idle before delete on others for each row execute function idle()")
		arm(t, db, policies(policy("p", "public.sessions", "pace: unlimited", "triggers: trusted"), policy("q", "public.others", "pace: unlimited", "triggers: trusted")))
		e := newExecutor(t, db, func(c *Config) { c.Limits.BatchTime = 100 * time.Millisecond })
		list := inForce(t, db)
		for i := range list { // a batch begins with all of them
			e.memory(&list[i]).sizing.size.rows = 5000
		}
		s, err := e.Once(t.Context(), []schemas.PolicyName{"p", "q"})
		for _, p := range s.Policies {
			failed := counted(t, e, "lapse_batches_total", string(p.Policy), "halve") + counted(t, e, "lapse_batches_total", string(p.Policy), "step_over")
			switch {
			case p.Policy == "p" && (p.Outcome != Resisted || p.Deleted != 2999 || len(p.Obstacles) != 1 || p.Obstacles[0].Trigger != "slow" || p.Obstacles[0].SQLState != schemas.SQLStateQueryCanceled):
				t.Errorf("the pass did %+v, %v; want that 2999 rows were deleted, and one is in quarantine because of trigger slow", p, err)
			case p.Policy == "q" && (p.Outcome != Finished || p.Deleted != 150):
				t.Errorf("the pass did %+v, %v; want that all rows were deleted", p, err)
			}
			if failed > 4 {
				t.Errorf("policy %s: %.0f batches took too long", p.Policy, failed)
			}
		}
		if got := one[string](t, db, "select string_agg(key[1], ' ') from lapse.quarantine"); got != "2000" {
			t.Errorf("in quarantine is %s", got)
		}
	})
}
