package executor

import (
	"testing"

	"lapse/internal/pgtest"
)

// A partition is dropped whole when every row in it is due, unless a hold is on one of its rows.
func TestAPartitionWithAHeldRowIsNotDroppedWhole(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		owned(t, db, `create table p (id bigint, at timestamptz, primary key (id, at)) partition by range (at);
			create table p_a partition of p for values from ('2020-01-01') to ('2021-01-01');
			create table p_b partition of p for values from ('2021-01-01') to ('2022-01-01');
			create table p_c partition of p for values from ('2022-01-01') to (maxvalue);
			insert into p select n, '2020-05-05'::timestamptz + n * interval '1 day' from generate_series(1, 5) n;
			insert into p select n, '2021-05-05'::timestamptz + n * interval '1 day' from generate_series(6, 9) n; create index on p (at, id)`)
		arm(t, db, policies(policy("p", "public.p", "action: drop_partition")))
		placeHold(t, holdSession(t, db), byWhere("public.p", "id = 3"))
		once(t, newExecutor(t, db), "p")
		if got := one[string](t, db, "select string_agg(relname, ' ' order by relname) from pg_class where relname ~ '^p_.$'"); got != "p_a p_c" {
			t.Errorf("partitions %s are left, want that with the held row and the last", got)
		}
		if got := ids(t, db, "p"); got != "3" {
			t.Errorf("rows %s stay, want 3", got)
		}
	})
}

// A hold that is placed while a policy at an unlimited pace works loses no row from the moment that the command returns.
func TestAHoldIsPlacedBesideBatchesBackToBack(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 20000, 0)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 50", "pace: unlimited")))
		e := newExecutor(t, db)
		ran := make(chan error, 1)
		go func() {
			_, err := e.Once(t.Context(), nil)
			ran <- err
		}()
		eventually(t, "batches run", func() bool { return one[int](t, db, "select count(*) from lapse.batch") > 3 })
		placeHold(t, holdSession(t, db), byWhere("public.sessions", "id % 10 = 0"))
		seen := one[int](t, db, "select count(*) from sessions where id % 10 = 0")
		if err := <-ran; err != nil {
			t.Fatal(err)
		}
		once(t, newExecutor(t, db), "p")
		held, others := one[int](t, db, "select count(*) from sessions where id % 10 = 0"), one[int](t, db, "select count(*) from sessions where id % 10 > 0")
		if held != seen || others != 0 || seen == 0 {
			t.Errorf("%d held rows are left of %d, and %d others", held, seen, others)
		}
	})
}

// apply goes through the gates as a hold does: a period that is lengthened while a run goes on saves every row that the new version
// keeps, from the moment that it returns.
func TestAPeriodThatIsLengthenedDuringARunSavesItsRows(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 40, 0)
		owned(t, db, "update sessions set at = now() - interval '50 days' where id <= 20")
		arm(t, db, policies(policy("p", "public.sessions", "batch: 5")))
		w := open(t, db, "p")
		_, commit, err := w.openBatch(t, 5)
		if err != nil {
			t.Fatal(err)
		}
		applied := make(chan struct{})
		go func() {
			defer close(applied)
			arm(t, db, policies(`  - { name: p, table: public.sessions, expire: { column: at, after: 45 days }, state: armed, batch: 5 }`))
		}()
		eventually(t, "apply waits for the gates", func() bool { return one[bool](t, db, waitsForGates) })
		if err := commit(); err != nil {
			t.Fatal(err)
		}
		<-applied
		if _, err := w.batch(t, 5); err == nil {
			t.Error("a batch of the former version was let in")
		}
		db.Exec(t, expireLeases)
		once(t, newExecutor(t, db), "p")
		if kept, gone := one[int](t, db, "select count(*) from sessions where id > 20"), one[int](t, db, "select count(*) from sessions where id <= 20"); kept != 20 || gone != 0 {
			t.Errorf("%d rows that the new version keeps are left of 20, and %d that are due", kept, gone)
		}
	})
}
