package executor

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"lapse/executor/batch"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// partitioned makes a table of several partitions with due rows in each.
func partitioned(t testing.TB, db *pgtest.DB, partitions, due int) {
	t.Helper()
	statements := []string{"create table parts (id bigint primary key, at timestamptz) partition by hash (id)"}
	for i := range partitions {
		statements = append(statements, fmt.Sprintf("create table parts_%d partition of parts for values with (modulus %d, remainder %d)", i, partitions, i))
	}
	owned(t, db, append(statements, "create index on parts (at, id)",
		fmt.Sprintf("insert into parts select g, now() - interval '40 days' from generate_series(1, %d) g", due), "analyze parts")...)
}

// setLimits gives the one policy its limits as the policy file's keys would.
func setLimits(t testing.TB, db *pgtest.DB, limits string) {
	t.Helper()
	db.Exec(t, "alter table lapse.policy disable trigger append_only",
		"update lapse.policy set spec = spec || '"+limits+"'", "alter table lapse.policy enable trigger append_only")
}

func TestARunNeverDeletesMoreThanMaxRowsPerRun(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		partitioned(t, db, 4, 250)
		arm(t, db, policies(policy("p", "public.parts", "batch: 64")))
		setLimits(t, db, `{"max_rows_per_run": 100}`)
		e := newExecutor(t, db)
		for run, left := range []int{150, 50, 0} {
			s := only(t, once(t, e, "p"))
			if got := one[int](t, db, "select count(*) from parts"); got != left {
				t.Fatalf("after run %d %d rows are left, want %d", run+1, got, left)
			}
			if want := map[bool]Outcome{true: Limited, false: Finished}[left > 0]; s.Outcome != want || (s.Limit == "") != (want == Finished) {
				t.Errorf("run %d: %+v, want it %s, and why", run+1, s, want)
			}
		}
		if got := one[string](t, db, "select string_agg(coalesce(ended_by, 'itself'), ', ' order by number) from lapse.run"); got != "max_rows_per_run, max_rows_per_run, itself" {
			t.Errorf("the runs were ended by %s", got)
		}
		if got := counted(t, e, "lapse_limit_reached_total", "p", limitMaxRows); got != 2 {
			t.Errorf("the metric says %v, want 2", got)
		}
	})
}

// All of them take rows from one place, so that it makes no difference who deletes how many.
func TestSeveralExecutorsTogetherKeepToMaxRowsPerRun(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		partitioned(t, db, 8, 2000)
		arm(t, db, policies(policy("p", "public.parts", "batch: 7", "pace: unlimited")))
		setLimits(t, db, `{"max_rows_per_run": 500}`)
		var executors sync.WaitGroup
		for range 3 {
			e := newExecutor(t, db)
			executors.Go(func() { _, _ = e.Once(t.Context(), []schemas.PolicyName{"p"}) })
		}
		executors.Wait()
		// An executor that came when the others' run was over has begun one of its own.
		if got := one[bool](t, db, "select bool_and(n <= 500) and max(n) = 500 from (select sum(deleted) as n from lapse.shard group by run) s"); !got {
			t.Errorf("the runs deleted %s, want no more than 500 each",
				one[string](t, db, "select string_agg(n::text, ', ') from (select sum(deleted) as n from lapse.shard group by run) s"))
		}
	})
}

// What a killed process took might still be deleted by a batch of its that was entered before it died.
func TestRowsThatADeadExecutorTookAreNotDeletedByAnotherUntilItsLeaseHasEnded(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		partitioned(t, db, 2, 250)
		arm(t, db, policies(policy("p", "public.parts")))
		setLimits(t, db, `{"max_rows_per_run": 100}`)
		w := open(t, db, "p")
		take := func(l *batch.Lease, wanted int) batch.Allowance {
			t.Helper()
			a, err := w.TakeRows(t.Context(), l, wanted)
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		dead := w.a.Lease
		w.acquire(t)
		if a := take(dead, 70); a.Rows != 70 {
			t.Fatalf("took %+v", a)
		}
		if a := take(w.a.Lease, 50); a.Rows != 30 {
			t.Errorf("the rest beside a lease that holds is %+v, want 30", a)
		}
		if done, err := w.batch(t, 30); err != nil || done.Deleted != 30 {
			t.Fatalf("%+v, %v", done, err)
		}
		if a := take(w.a.Lease, 50); a.Rows != 0 || a.Over || a.Pause <= 0 {
			t.Errorf("while others have the rest in hand: %+v, want a pause", a)
		}
		db.Exec(t, fmt.Sprintf("update lapse.shard set lease_until = clock_timestamp() - interval '2 minutes' where id = %d", dead.Shard))
		if a := take(w.a.Lease, 100); a.Rows != 70 {
			t.Errorf("after the lease: %+v, want 70", a)
		}
		if done, err := w.batch(t, 70); err != nil || done.Deleted != 70 {
			t.Fatalf("%+v, %v", done, err)
		}
		if a := take(w.a.Lease, 10); !a.Over || a.Rows != 0 {
			t.Errorf("at the limit: %+v", a)
		}
		if ended, err := endRun(t.Context(), w.Control, w.run.ID, limitMaxRows); err != nil || !ended {
			t.Fatal(ended, err)
		}
		if a := take(w.a.Lease, 10); !a.Over || a.Rows != 0 {
			t.Errorf("for a run that is over: %+v", a)
		}
		w.a.Term++
		if _, err := w.TakeRows(t.Context(), w.a.Lease, 10); schemas.StateOf(err) != schemas.SQLStateLease {
			t.Errorf("with another's lease: %v, want that it is lost", err)
		}
	})
}

// The database's clock is the measure, whatever the machine does: what is promised is no more than the rate's rows in any time,
// and one second's rows more. Nobody takes rows before the run is begun, nor begins a batch before it has taken its rows.
func TestThePaceOfAllExecutorsTogetherIsTheRate(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		partitioned(t, db, 4, 1500)
		arm(t, db, policies(policy("p", "public.parts", "batch: 200", "pace: unlimited")))
		setLimits(t, db, `{"rate": 500}`)
		var throttled float64
		var executors sync.WaitGroup
		var count sync.Mutex
		for range 2 {
			e := newExecutor(t, db)
			executors.Go(func() {
				_, _ = e.Once(t.Context(), []schemas.PolicyName{"p"})
				count.Lock()
				defer count.Unlock()
				throttled += counted(t, e, "lapse_throttle_seconds_total", "p", limitRate)
			})
		}
		executors.Wait()
		const query = `
			select max(n - 500 * took) from (
			  select sum(r.deleted) over w as n, extract(epoch from b.started_at - run.started_at)::float8 as took
			    from lapse.batch b join lapse.batch_result r on r.batch = b.batch join lapse.run run on run.run = b.run
			  window w as (order by b.started_at)) s`
		if ahead := one[float64](t, db, query); ahead > 501 {
			t.Errorf("deletion was %v rows ahead of its rate, want no more than those of one second", ahead)
		}
		if left := one[int](t, db, "select count(*) from parts"); left != 0 || throttled == 0 {
			t.Errorf("%d rows are left, and %v seconds were waited", left, throttled)
		}
	})
}

func TestAPolicyThatWaitsForItsRateHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		two(t, db, 200)
		setLimits(t, db, `{}`)
		db.Exec(t, "alter table lapse.policy disable trigger append_only",
			`update lapse.policy set spec = spec || '{"rate": 1}' where name = 'a'`)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		e := newExecutor(t, db, func(c *Config) { c.Limits.Workers = 1 })
		go func() { done <- e.Run(ctx) }()
		eventually(t, "policy b is through", func() bool { return one[int](t, db, "select count(*) from b") == 0 })
		if n := one[int](t, db, "select count(*) from a"); n < 100 {
			t.Errorf("of a %d rows are left", n)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestWhatALimitGivesOut(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 10, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		setLimits(t, db, `{"rate": 100, "max_rows_per_run": 1000}`)
		w := open(t, db, "p")
		at := func(rows, taken int) {
			t.Helper()
			db.Exec(t, fmt.Sprintf("update lapse.allowance set tokens = %d, filled_at = clock_timestamp() + interval '1 hour'; update lapse.shard set deleted = %d", rows, taken))
		}
		take := func(wanted int) batch.Allowance {
			t.Helper()
			a, err := w.TakeRows(t.Context(), w.a.Lease, wanted)
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		if a := take(500); a.Rows != 100 {
			t.Errorf("first: %+v, want the rows of one second", a)
		}
		for _, c := range []struct {
			tokens, taken, wanted int
			want                  batch.Allowance
		}{
			{100, 0, 40, batch.Allowance{Rows: 40}},
			{60, 0, 100, batch.Allowance{Rows: 60}},
			{49, 0, 100, batch.Allowance{Pause: 10 * time.Millisecond}},
			{0, 0, 10, batch.Allowance{Pause: 100 * time.Millisecond}},
			{100, 990, 40, batch.Allowance{Rows: 10}},
			{100, 1000, 40, batch.Allowance{Over: true}},
			{5, 995, 40, batch.Allowance{Rows: 5}},
			{50, 50, -20, batch.Allowance{Rows: -20}},
		} {
			at(c.tokens, c.taken)
			if got := take(c.wanted); got != c.want {
				t.Errorf("%d tokens, %d taken, %d wanted: %+v, want %+v", c.tokens, c.taken, c.wanted, got, c.want)
			}
		}
		app := db.ConnectAs(t, appRole)
		if _, err := app.Exec(t.Context(), "select lapse.take_rows(1, 1, 'x', 10)"); schemas.StateOf(err) != "42501" {
			t.Errorf("the application takes rows: %v", err)
		}
	})
}

// hoursFrom is a window that opens and closes so many hours from now.
func hoursFrom(opens, closes time.Duration) string {
	at := func(d time.Duration) string { return time.Now().UTC().Add(d * time.Hour).Format("15:04") }
	return fmt.Sprintf(`{"window": "%s-%s UTC"}`, at(opens), at(closes))
}

// The executor's clock is the test's. It jumps past the window's end once the first batch is through.
func TestARunEndsWhenItsWindowClosesAndGoesOnWhenItOpens(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 100, 5)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 20")))
		setLimits(t, db, hoursFrom(6, 12))
		if s := only(t, once(t, newExecutor(t, db), "p")); s.Outcome != Limited || s.Batches != 0 || s.Limit == "" {
			t.Errorf("outside the window, although it is named: %+v", s)
		}
		if n := one[int](t, db, "select count(*) from lapse.run"); n != 0 {
			t.Errorf("%d runs were opened outside the window", n)
		}
		setLimits(t, db, hoursFrom(-6, 6))
		var ahead atomic.Int64
		e := newExecutor(t, db, func(c *Config) {
			c.Clock = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
			c.Progress = func(Progress) { ahead.Store(int64(7 * time.Hour)) }
		})
		s := only(t, once(t, e, "p"))
		if s.Outcome != Limited || s.Batches == 0 || s.Deleted >= 100 {
			t.Errorf("when the window closes: %+v", s)
		}
		if got := counted(t, e, "lapse_limit_reached_total", "p", "window"); got != 1 {
			t.Errorf("the metric says %v", got)
		}
		ahead.Store(0)
		again := only(t, once(t, newExecutor(t, db), "p"))
		if again.Outcome != Finished || again.Run != s.Run || again.Deleted+s.Deleted != 100 {
			t.Errorf("in the next window: %+v, want that run %v ends", again, s.Run)
		}
	})
}
