package executor

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"lapse/executor/batch"
	"lapse/internal/pgtest"
	"lapse/planner/run"
	"lapse/schemas"
)

// secondShard gives the open run another shard of the leaf that it has.
func secondShard(t testing.TB, db *pgtest.DB, run uuid.UUID) {
	t.Helper()
	db.Exec(t, fmt.Sprintf(`insert into lapse.shard (run, policy_id, version, leaf, cutoff, slice)
		select run, policy_id, version, leaf, cutoff, 1 from lapse.shard where run = '%s'`, run))
}

// Two shards of one leaf, each of them all of it: the workers meet in it, and step over each other's rows.
func TestTwoWorkersOnTwoShardsOfOneLeafDeleteNoRowTwice(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		const due, live = 1500, 300
		sessions(t, db, due, live)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 10", "pace: unlimited")))
		h := recorded(t, db)
		w := open(t, db, "p")
		secondShard(t, db, w.run.ID)
		if _, err := w.Release(t.Context(), w.a.Lease); err != nil {
			t.Fatal(err)
		}
		e := newExecutor(t, db)
		s := once(t, e)
		isExact(t, db, s, due, live)
		if only(t, s).Run != w.run.ID {
			t.Errorf("it worked on run %v, want %v", only(t, s).Run, w.run.ID)
		}
		noRowTwice(t, h, "public.sessions", due)
		if n := overlapping(t, db, "b.target = a.target"); n == 0 {
			t.Error("no two batches ran side by side")
		}
		got := one[string](t, db, "select count(*) || ' ' || bool_and(done) || ' ' || sum(deleted) || ' ' || count(*) filter (where deleted > 0) || ' ' || count(holder) from lapse.shard")
		if want := fmt.Sprintf("2 true %d 2 0", due); got != want {
			t.Errorf("shards, done, rows, with rows, held: %s; want %s", got, want)
		}
		if got := counted(t, e, "lapse_rows_deleted_total"); got != due {
			t.Errorf("the metric has %v rows", got)
		}
		if got := counted(t, e, "lapse_run_seconds"); got != 1 {
			t.Errorf("%v runs were measured", got)
		}
	})
}

func TestASliceIsMadeOnceAndIsWellFormed(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		w := open(t, db, "p")
		secondShard(t, db, w.run.ID)
		conn := db.Connect(t)
		for values, state := range map[string]string{
			"slice = 0":                     "23505",
			"slice = -1":                    "23514",
			"modulus = 4":                   "23514",
			"remainder = 0":                 "23514",
			"modulus = 4, remainder = 4":    "23514",
			"modulus = 0, remainder = 0":    "23514",
			"modulus = 4, remainder = 3":    "",
			"lower = null, upper = '{now}'": "",
		} {
			_, err := conn.PgConn().Exec(t.Context(), "begin; update lapse.shard set "+values+" where slice = 1; rollback").ReadAll()
			if _, failed := conn.Exec(t.Context(), "rollback"); failed != nil {
				t.Fatal(failed)
			}
			if schemas.StateOf(err) != state || state == "" && err != nil {
				t.Errorf("%s: %v, want %q", values, err, state)
			}
		}
	})
}

// Rows that an update carried into a slice that is done are the residual shard's, which follows the others of its leaf.
func TestAResidualShardFollowsTheOthersOfItsLeaf(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		w := open(t, db, "p")
		secondShard(t, db, w.run.ID)
		db.Exec(t, "update lapse.shard set residual = true where slice = 1")
		other, err := batch.Connect(t.Context(), newExecutor(t, db).config.Database, "another", time.Second, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		acquire := func() *batch.Lease {
			t.Helper()
			l, err := other.Acquire(t.Context(), w.run.ID)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		if l := acquire(); l != nil {
			t.Error("the residual shard is given out while another is under way")
		}
		db.Exec(t, "update lapse.shard set done = true where slice = 0")
		if l := acquire(); l == nil {
			t.Error("the residual shard is not given out when the others are done")
		}
	})
}

// A run whose leaf has two shards that were put aside is followed by one whose leaf has one.
func TestShardsOfOneLeafThatWerePutAsideMakeTheNextRunsShardOnce(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		w := open(t, db, "p")
		secondShard(t, db, w.run.ID)
		db.Exec(t, `update lapse.shard set aside = true, tries = 1 + slice, sqlstate = '23503', holder = null, lease_until = null,
			retry_at = clock_timestamp() + (1 + slice) * interval '1 hour'`)
		for _, want := range []string{"1 0 2 true", "1 0 1 true"} {
			opened, err := run.Open(t.Context(), w.Control, w.policy, time.Now, run.Options{})
			if err != nil {
				t.Fatal(err)
			}
			got := one[string](t, db, "select count(*) || ' ' || max(slice) || ' ' || max(tries) || ' ' || bool_and(aside) from lapse.shard where run = $1", opened.ID)
			if got != want || opened.Shards != 0 {
				t.Errorf("shards, slice, tries, aside: %s, %d to do; want %s", got, opened.Shards, want)
			}
			// A hash part that was put aside says nothing of the whole leaf.
			db.Exec(t, "delete from lapse.run")
			opened, err = run.Open(t.Context(), w.Control, w.policy, time.Now, run.Options{})
			if err != nil {
				t.Fatal(err)
			}
			secondShard(t, db, opened.ID)
			db.Exec(t, `update lapse.shard set aside = true, tries = 1 + slice * 8, retry_at = clock_timestamp() + interval '1 hour', sqlstate = '23503',
				modulus = case when slice = 1 then 2 end, remainder = case when slice = 1 then 0 end`)
		}
	})
}
