package executor

import (
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/schemas"
)

// byRun is how many rows each run deleted.
func byRun(t testing.TB, db *pgtest.DB) string {
	t.Helper()
	return one[string](t, db, `
		select coalesce(string_agg(format('%s by %s', n, coalesce(ended_by, 'itself')), ', ' order by number), '')
		  from lapse.run r, lateral (select sum(s.deleted) as n from lapse.shard s where s.run = r.run) s`)
}

// The share is one of the whole partitioned table, when the run begins, as PostgreSQL estimates it then.
func TestARunDeletesNoMoreThanItsShareOfTheTable(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		partitioned(t, db, 4, 1000)
		arm(t, db, policies(policy("p", "public.parts", "batch: 64", "max_rows_per_run: 10%")))
		e := newExecutor(t, db)
		if s := only(t, once(t, e, "p")); s.Deleted != 100 || s.Outcome != Limited || s.Limit != "max_rows_per_run: 100 rows were deleted, and the next run goes on" {
			t.Errorf("got %+v", s)
		}
		db.Exec(t, "vacuum analyze parts")
		once(t, e, "p")
		arm(t, db, policies(policy("p", "public.parts", "max_rows_per_run: 0.2%"))) // of 810 that is 1.6: whole rows, and one at least
		once(t, e, "p")
		arm(t, db, policies(policy("p", "public.parts", "max_rows_per_run: 0.001%")))
		once(t, e, "p")
		arm(t, db, policies(policy("p", "public.parts", "max_rows_per_run: 100%"))) // more than before goes at once: no more falls due by it
		once(t, e, "p")
		if got, want := byRun(t, db), "100 by max_rows_per_run, 90 by max_rows_per_run, 1 by max_rows_per_run, 1 by max_rows_per_run, 808 by itself"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

// Where nobody has analyzed the table, its rows that will ever be due are counted, whatever is due now.
func TestAShareOfATableThatNobodyHasAnalyzedIsCounted(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		owned(t, db, "create table parts (id bigint primary key, at timestamptz) partition by hash (id)",
			"create table parts_0 partition of parts for values with (modulus 2, remainder 0)",
			"create table parts_1 partition of parts for values with (modulus 2, remainder 1)",
			"alter table parts_0 set (autovacuum_enabled = off)", "alter table parts_1 set (autovacuum_enabled = off)",
			"insert into parts select g, now() - case when g <= 300 then interval '40 days' else '1 day' end from generate_series(1, 1000) g",
			"insert into parts select g, null from generate_series(1001, 1500) g")
		arm(t, db, policies(policy("p", "public.parts", "max_rows_per_run: 5%")))
		e := newExecutor(t, db)
		once(t, e, "p")
		owned(t, db, "analyze parts_0", "analyze parts_1") // 1450
		once(t, e, "p")
		if got, want := byRun(t, db), "50 by max_rows_per_run, 72 by max_rows_per_run"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// A limit that slows does not stop: a locked partition is not waited for, and the catalog's own number is taken.
func TestAShareThatCannotBeCountedIsOneOfTheCatalogsEstimate(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		partitioned(t, db, 4, 1000)
		arm(t, db, policies(policy("p", "public.parts", "max_rows_per_run: 10%")))
		locker := connectTo(t, db)
		if _, err := locker.Exec(t.Context(), "begin; lock table parts_0 in access exclusive mode"); err != nil {
			t.Fatal(err)
		}
		e := newExecutor(t, db)
		if s := only(t, once(t, e, "p")); s.Deleted != 100 {
			t.Errorf("beside a locked partition: %+v, want 100 gone", s)
		}
	})
}

// The number is the run's: a process that goes on with the run keeps to it, however many rows the table has by then.
func TestARunKeepsTheShareThatItBeganWith(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		partitioned(t, db, 4, 1000)
		arm(t, db, policies(policy("p", "public.parts", "batch: 40", "max_rows_per_run: 10%")))
		w := open(t, db, "p")
		if w.run.Most != 100 {
			t.Fatalf("the run may delete %d rows, want 100", w.run.Most)
		}
		if done, err := w.batch(t, 30); err != nil || done.Deleted != 30 {
			t.Fatalf("%+v, %v", done, err)
		}
		db.Exec(t, "insert into parts select g, now() - interval '40 days' from generate_series(1001, 9000) g", "vacuum analyze parts",
			fmt.Sprintf("update lapse.shard set lease_until = clock_timestamp() - interval '2 minutes' where id = %d", w.a.Lease.Shard))
		var executors sync.WaitGroup
		for range 3 {
			e := newExecutor(t, db)
			executors.Go(func() { _, _ = e.Once(t.Context(), []schemas.PolicyName{"p"}) })
		}
		executors.Wait()
		first := one[int](t, db, "select sum(s.deleted)::int from lapse.shard s join lapse.run r using (run) where r.number = (select min(number) from lapse.run)")
		if first != 100 {
			t.Errorf("%d rows went in the run, want the 100 that it began with: %s", first, byRun(t, db))
		}
		if late := one[bool](t, db, "select coalesce(bool_and(most > 880 and most < 900), true) from lapse.run where number > (select min(number) from lapse.run)"); !late {
			t.Errorf("later runs went by another number: %s", byRun(t, db))
		}
	})
}

// What somebody let go is no more than the share, and the other way round. Each is called by its name.
func TestAYesAndAShareBoundARunTogether(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 40, 60)
		db.Exec(t, "alter table sessions set (autovacuum_enabled = off)") // the share is of what the statistics say
		arm(t, db, policies(policy("p", "public.sessions", "max_fraction: 0.2", "max_rows_per_run: 10%")))
		e := newExecutor(t, db)
		for _, c := range []struct {
			yes  int64
			want string
		}{{5, "accepted: 5 rows were deleted, and more need another yes"}, {30, "max_rows_per_run: 10 rows were deleted, and the next run goes on"}} {
			if s, err := e.Once(t.Context(), []schemas.PolicyName{"p"}); err == nil {
				t.Fatalf("the breaker let a run begin: %+v", s)
			}
			list, err := record.LoadInForce(t.Context(), connectTo(t, db))
			if err != nil {
				t.Fatal(err)
			}
			if err := pgx.BeginFunc(t.Context(), connectTo(t, db), func(tx pgx.Tx) error { return run.AcceptTrip(t.Context(), tx, &list[0], c.yes) }); err != nil {
				t.Fatal(err)
			}
			if s := only(t, once(t, e, "p")); s.Limit != c.want {
				t.Errorf("%d were let go: %+v, want %q", c.yes, s, c.want)
			}
		}
	})
}
