package executor

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/executor/batch"
	"lapse/internal/pgtest"
	"lapse/planner/record"
	"lapse/schemas"
)

func TestMostOfTheTimeIsLeftToAnApplicationThatIsThere(t *testing.T) {
	t.Parallel()
	c, now := newPace(), time.Now()
	p := &record.InForce{}
	look := func(others bool) float64 {
		now = now.Add(time.Second)
		c.looked(others, now, now)
		return c.share(p)
	}
	for _, step := range []struct {
		what   string
		others bool
		looks  int
		want   float64
	}{
		{"nobody is there at first", false, 1, quietShare},
		{"somebody is seen once", true, 1, gentleShare},
		{"and not again", false, 9, gentleShare},
		{"and not for long", false, 1, quietShare},
		{"every third look sees somebody", true, 1, gentleShare},
		{"and two do not", false, 2, gentleShare},
	} {
		for n := range step.looks {
			if got := look(step.others); got != step.want {
				t.Errorf("%s: after look %d it has %v of the time, want %v", step.what, n, got, step.want)
			}
		}
	}
	now = now.Add(-time.Hour)
	if got := look(false); got != quietShare {
		t.Errorf("after the clock was set back: %v", got)
	}
}

// The server is one of its own: on another there are other tests.
func TestAnApplicationIsSeenInWhateverDatabaseAndOneThatDoesNothingIsNot(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		executor := schemas.RolesFor(schemas.DefaultRolePrefix).Executor
		look := func() float64 {
			t.Helper()
			w := newTestWorker(t, db)
			defer w.close()
			w.pace.look = seeOthers
			if err := w.connect(t.Context(), forever); err != nil {
				t.Fatal(err)
			}
			p := &record.InForce{}
			if err := w.shareTime(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			return w.pace.share(p)
		}
		idle := db.Connect(t)
		if _, err := idle.Exec(t.Context(), "begin; create table seen ()"); err != nil {
			t.Fatal(err)
		}
		for _, rights := range []string{"select", "grant pg_read_all_stats to " + executor} {
			db.Exec(t, rights)
			eventually(t, "nobody is at work", func() bool { return look() == quietShare })
			other, err := pgx.Connect(t.Context(), db.Server.URL("postgres", "postgres"))
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var slept sync.WaitGroup
			slept.Go(func() { _, _ = other.Exec(ctx, "select pg_sleep(600)") }) // it ends with ctx
			eventually(t, "a statement in another database is seen: "+rights, func() bool { return look() == gentleShare })
			cancel()
			slept.Wait()
		}
	})
}

func TestAShareIsSplitAmongThePolicysOwnWorkers(t *testing.T) {
	t.Parallel()
	c, p := newPace(), &record.InForce{}
	p.ID, p.Limits.Pace = 7, "20%"
	for range 4 {
		c.join(budgetOf(p))
	}
	c.join(allGentle)
	if got := c.share(p); got != 0.05 {
		t.Errorf("one of four workers has %v of the time", got)
	}
	c.counted(map[budget]int{7: 10, 8: 90})
	if got := c.share(p); got != 0.02 {
		t.Errorf("one of ten workers of all processes has %v of the time", got)
	}
}

func TestTheDatabaseIsAskedForTheWorkersOnceInAWhile(t *testing.T) {
	t.Parallel()
	c, now := newPace(), time.Now()
	for n, want := range []bool{true, false, false} {
		if got := c.mayCount(now.Add(time.Duration(n) * factsInterval / 4)); got != want {
			t.Errorf("question %d: %v", n, got)
		}
	}
	if !c.mayCount(now.Add(factsInterval)) || !c.mayCount(now.Add(-time.Hour)) {
		t.Error("it is not asked again, or not after the clock was set back")
	}
}

func TestLooksTakeATwentiethOfTheTimeAtMost(t *testing.T) {
	t.Parallel()
	c, now := newPace(), time.Now()
	var looks time.Duration
	const took, steps = 3 * time.Millisecond, 10_000
	for range steps {
		if now = now.Add(time.Millisecond); c.mayLook(now) {
			c.looked(false, now, now.Add(took))
			looks += took
			now = now.Add(took)
		}
	}
	if all := steps*time.Millisecond + looks; looks < all/(lookShare+2) || looks > all/lookShare+took {
		t.Errorf("they took %v of %v", looks, all)
	}
	if !c.mayLook(now.Add(-time.Hour)) {
		t.Error("after the clock was set back it does not look again")
	}
}

// A worker's pause belongs to the batch before it, and the next batch may be another policy's.
func TestAPauseIsThatOfThePolicyWhoseBatchItFollows(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		var r resting
		e := newExecutor(t, db, r.config)
		e.pace.sleep = r.sleep
		w := e.newWorker(0, newScheduler(endless{e}, e.memory, e.now))
		defer w.close()
		if err := w.connect(t.Context(), forever); err != nil {
			t.Fatal(err)
		}
		gentle, all, hundredth := &record.InForce{}, &record.InForce{}, &record.InForce{}
		all.ID, all.Limits.Pace = 2, "100%"
		hundredth.ID, hundredth.Limits.Pace = 3, "0.1%"
		for _, step := range []struct {
			batch, next *record.InForce
			want        time.Duration
		}{
			{gentle, all, restBatch}, {all, gentle, 0}, {gentle, gentle, restBatch}, {all, hundredth, 0}, {hundredth, all, 999 * restBatch},
		} {
			end := w.takeTime(t.Context(), step.batch, &batch.Order{})
			r.pass(restBatch)
			end()
			before := r.ahead
			if err := w.waitAfterBatch(t.Context(), t.Context(), &turn{policy: step.next, memory: newPolicyMemory(step.next, nil)}); err != nil {
				t.Fatal(err)
			}
			if got := r.ahead - before; got != step.want {
				t.Errorf("between a batch at pace %q and one at %q it rested for %v, want %v", step.batch.Limits.Pace, step.next.Limits.Pace, got, step.want)
			}
		}
		// Of a batch that paused between its portions only the work counts, and its pauses count as pauses.
		end := w.takeTime(t.Context(), gentle, &batch.Order{Portions: 2})
		r.pass(restBatch)
		end()
		w.batchSlept = restBatch / 4
		before := r.ahead
		if err := w.waitAfterBatch(t.Context(), t.Context(), &turn{policy: gentle, memory: newPolicyMemory(gentle, nil)}); err != nil || r.ahead-before != restBatch/2 {
			t.Errorf("after a batch with pauses it rested for %v: %v", r.ahead-before, err)
		}
	})
}
