package planner

import (
	"slices"
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/planner/functions"
	"lapse/schemas"
)

// noted makes a table note how many rows each of its DELETEs had.
const noted = `create table portions (n serial, size bigint);
	create function note() returns trigger language plpgsql security definer as
	$$ begin insert into shop.portions (size) select count(*) from gone; return null; end $$;
	create trigger note after delete on sessions referencing old table as gone for each statement execute function note()`

// A batch in portions is one batch: one row of the ledger, one place of the cursor. Only its search and its DELETE run several times.
func TestABatchInPortionsIsOneBatch(t *testing.T) {
	t.Parallel()
	for shape, want := range map[string][]int64{
		functions.ShapeRange: {4, 4, 4}, functions.ShapeHeap: {4, 4, 4},
		functions.ShapePick: {4}, functions.ShapeHeapPick: {4}, // rows that are locked one by one stay locked for one portion alone
	} {
		pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
			w := newWorld(t, db, sessions)
			plant(w, noted)
			w.fill("sessions", 30)
			p := w.armed(trustedPolicy(`trusted`))
			b := w.lease(p, w.open(&p))
			b.Shape, b.Limit, b.Portions = shape, 4, 3
			got, err := w.call(b, nil)
			must(t, err)
			sizes := value[[]int64](w, `select array_agg(size order by n) from portions`)
			if all := int64(len(want)) * 4; got.Deleted != all || got.Picked != all || got.Finished || !slices.Equal(sizes, want) {
				t.Errorf("%s: %+v in portions of %v", shape, got, sizes)
			}
			if n := valueOn[int](t, w.exec, `select count(*) from lapse.batch b join lapse.batch_result r using (batch) where r.deleted = $1`, got.Deleted); n != 1 {
				t.Errorf("%s: %d rows of the ledger", shape, n)
			}
			for !got.Finished {
				got, err = w.call(b, nil)
				must(t, err)
			}
			if n := value[int](w, `select count(*) from sessions where last_seen < now() - interval '30 days'`); n != 0 {
				t.Errorf("%s: %d rows are left", shape, n)
			}
		})
	}
}

// All portions together have at most as many rows as the policy's batch, and a pause is a tenth of a second at most: the batch's locks stay.
func TestPortionsAreBounded(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.fill("sessions", 3)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed", "    batch: 100"))
		b := w.lease(p, w.open(&p))
		for _, forged := range []struct{ rows, portions int }{{34, 3}, {1, 101}, {100, 2}, {1, -1}} {
			b.Limit, b.Portions = forged.rows, forged.portions
			_, err := w.call(b, nil)
			wantState(t, err, schemas.SQLStateLimit)
		}
		long := 60.0
		b.Limit, b.Portions, b.Pause = 33, 3, &long
		began := time.Now()
		got, err := w.call(b, nil)
		must(t, err)
		if took := time.Since(began); got.Deleted != 3 || took > 30*time.Second {
			t.Errorf("%+v after %v", got, took)
		}
	})
}

// A row may move to where the pass has been, between two portions: here a trigger moves the last one. So a batch of several portions does not
// end its run, and the second pass finds the row.
func TestARowThatMovesBetweenPortionsIsNotForgotten(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		plant(w, `create function move() returns trigger language plpgsql security definer as
			$$ begin update shop.sessions set last_seen = '2001-01-01' where id = (select max(id) from shop.sessions where last_seen < now() - interval '30 days'); return null; end $$;
			create trigger move after delete on sessions for each statement execute function move()`)
		w.fill("sessions", 3)
		p := w.armed(trustedPolicy(`trusted`))
		b := w.lease(p, w.open(&p))
		b.Limit, b.Portions = 2, 5
		var deleted int64
		for n := 0; ; n++ {
			got, err := w.call(b, nil)
			must(t, err)
			if deleted += got.Deleted; got.Finished {
				break
			}
			if n > 5 {
				t.Fatal("the run does not end")
			}
		}
		if deleted != 3 {
			t.Errorf("%d rows were deleted, want 3", deleted)
		}
	})
}

// A batch may take ten times its time before it is ended, and all its portions would be in vain. So it goes no further when its time is used up once.
func TestABatchEndsAfterThePortionInWhichItsTimeIsUsedUp(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		plant(w, `create function linger() returns trigger language plpgsql as $$ begin perform pg_catalog.pg_sleep(0.7); return null; end $$;
			create trigger linger after delete on sessions for each statement execute function linger()`)
		w.fill("sessions", 9)
		p := w.armed(trustedPolicy(`trusted`))
		b := w.lease(p, w.open(&p))
		b.Limit, b.Portions = 3, 3
		must(t, runSQL(w.exec, `set statement_timeout = '10 s'`))
		got, err := w.call(b, nil)
		if must(t, err); got.Deleted != 6 || got.Finished {
			t.Errorf("in a second: %+v", got)
		}
		must(t, runSQL(w.exec, `set statement_timeout = 0`))
		if got, err = w.call(b, nil); err != nil || got.Deleted != 3 {
			t.Errorf("then: %+v: %v", got, err)
		}
	})
}

// A low-water mark needs a pass that was read in the order throughout. Here a tie is gone through by the table's file in the first portions, and the
// last one is read in the order again.
func TestATieInAnEarlierPortionKeepsThePassFromMakingAMark(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions, `create index on sessions (last_seen)`)
		w.fill("sessions", 6)
		w.do(`update sessions set last_seen = now() - interval '50 days' where id < 6`)
		w.do(`update sessions set last_seen = now() - interval '40 days' where id >= 6`)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		b := w.lease(p, w.open(&p))
		must(t, runSQL(w.admin, `update lapse.shard set pass = 2`))
		b.Limit, b.Portions = 2, 10
		got, err := w.call(b, nil)
		must(t, err)
		if got.Deleted < 5 || !got.Finished || !valueOn[bool](t, w.exec, `select left_some from lapse.shard`) {
			t.Errorf("got %+v, and the pass left nothing", got)
		}
	})
}
