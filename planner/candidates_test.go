package planner

import (
	"testing"

	"lapse/internal/pgtest"
	"lapse/planner/functions"
)

const (
	carts      = `create table carts (id int primary key, opened timestamptz not null, ttl interval)`
	cartPolicy = "policies:\n  - {name: p, table: shop.carts, expire: {column: opened, ttl_column: ttl}, state: armed}\n"
)

// A batch that checked all of them would be over its time, and its partition skipped, forever.
func TestRowsThatArePastAndNotDueKeepNoBatch(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		const kept, due, limit = 300_000, 100, 2500
		w := newWorld(t, db, carts, `create index on carts (opened, id)`)
		w.do(`insert into carts select n, now() - interval '1 year' + n * interval '1 second', '10 years' from generate_series(1, $1::int) n`, kept)
		w.do(`insert into carts select $1::int + n, now() - interval '1 hour', '1 minute' from generate_series(1, $2::int) n`, kept, due)
		w.do(`analyze carts`)
		p := w.armed(cartPolicy)
		b := w.lease(p, w.open(&p))
		b.Limit = limit
		var batches, passes, deleted int
		for got := (result{}); !got.Finished; batches++ {
			cursor := valueOn[[]string](t, w.exec, `select cursor from lapse.shard where id = $1`, b.Shard)
			var err error
			got, err = w.call(b, nil)
			must(t, err)
			deleted += int(got.Deleted)
			if got.PassOver {
				passes++
				continue
			}
			if next := valueOn[[]string](t, w.exec, `select cursor from lapse.shard where id = $1`, b.Shard); len(next) != 1 || cursor != nil && next[0] <= cursor[0] {
				t.Fatalf("the cursor went from %v to %v", cursor, next)
			}
		}
		if left := value[int](w, `select count(*) from carts`); deleted != due || left != kept {
			t.Errorf("%d rows were deleted and %d are left, want %d and %d", deleted, left, due, kept)
		}
		if want := 2*kept/(limit*functions.LookAhead) + 1; batches != want || passes != 2 {
			t.Errorf("it took %d batches in %d passes, want %d in 2", batches, passes, want)
		}

		// A run that finds nothing looks once.
		b = w.lease(p, w.open(&p))
		b.Limit = limit
		batches = 0
		for got := (result{}); !got.Finished; batches++ {
			var err error
			got, err = w.call(b, nil)
			must(t, err)
		}
		if want := kept / (limit * functions.LookAhead); batches != want {
			t.Errorf("the look that finds nothing took %d batches, want %d", batches, want)
		}
	})
}

// A row that somebody has locked is stepped over, looked for again, and at last left behind.
func TestACandidateThatSomebodyHasLockedIsLookedForAgain(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, carts)
		p := w.armed(cartPolicy)
		for name, released := range map[string]bool{"until after the run": false, "until the residual pass": true} {
			w.do(`insert into carts select n, now() - interval '1 day', '1 minute' from generate_series(1, 5) n`)
			other, err := w.owner.Begin(t.Context())
			must(t, err)
			_, err = other.Exec(t.Context(), `select from carts where id in (2, 5) for share`)
			must(t, err)
			b := w.lease(p, w.open(&p))
			b.Limit, b.Shape = 1, functions.ShapePick // what the executor goes on with after a lock
			deleted, behind := 0, false
			for got := (result{}); !got.Finished; {
				got, err = w.call(b, nil)
				must(t, err)
				deleted, behind = deleted+int(got.Deleted), got.LeftBehind
				if got.PassOver && released {
					must(t, other.Rollback(t.Context()))
					released = false
				}
			}
			if want := map[bool]int{true: 3, false: 5}[behind]; deleted != want || behind != (name == "until after the run") {
				t.Errorf("%s: %d rows were deleted, left behind: %t", name, deleted, behind)
			}
			_ = other.Rollback(t.Context())
			w.do(`delete from carts`)
		}
	})
}
