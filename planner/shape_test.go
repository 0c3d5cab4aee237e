package planner

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"lapse/internal/fixture/definitions"
	"lapse/internal/pgtest"
	"lapse/planner/functions"
	"lapse/planner/record"
	"lapse/schemas"
)

func TestAShapeThatAPolicysBatchesDoNotHaveIsRefused(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.fill("sessions", 10)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		b := w.lease(p, w.open(&p))
		for _, shape := range []string{"x", "Range", "range'", "%s", "heap "} {
			b.Shape = shape
			_, err := w.call(b, nil)
			wantState(t, err, schemas.SQLStateShape)
		}
		if joined := (&functions.Definition{Expire: definitions.Sidecar()}).Shapes(); !slices.Equal(joined, []string{functions.ShapeRange, functions.ShapePick}) {
			t.Errorf("where a sidecar says when a row is due the shapes are %v", joined)
		}
	})
}

// A range waits for a locked row no longer than its session's lock_timeout, and leaves nothing. A pick passes over the row.
func TestARangeWithALockedRowFailsWhole(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions, `create index on sessions (last_seen, id)`)
		w.fill("sessions", 10)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		b := w.lease(p, w.open(&p))
		tx, err := w.owner.Begin(t.Context())
		must(t, err)
		_, err = tx.Exec(t.Context(), `select from sessions where id = 2 for update`)
		must(t, err)
		must(t, runSQL(w.exec, `set lock_timeout = '50ms'`))
		b.Limit = 4
		_, err = w.call(b, nil)
		wantState(t, err, schemas.SQLStateLockNotAvailable)
		w.wantIDs("sessions", numbers(1, 20)...)
		w.wantLedger(0, 0)
		if cursor := valueOn[[]string](t, w.exec, `select cursor from lapse.shard where id = $1`, b.Shard); cursor != nil {
			t.Errorf("the cursor moved to %v", cursor)
		}
		b.Shape = functions.ShapePick
		got, err := w.call(b, nil)
		must(t, err)
		if got.Deleted != 3 {
			t.Errorf("the pick got %+v", got)
		}
		must(t, tx.Rollback(t.Context()))
		b.Shape = "" // a range takes up the pick's cursor
		got, err = w.call(b, nil)
		must(t, err)
		if got.Deleted != 4 {
			t.Errorf("the range after it got %+v", got)
		}
		w.wantIDs("sessions", append([]int64{2, 9, 10}, numbers(11, 20)...)...)
	})
}

// The range waits for a row that somebody has in hand, and then sees what became of it.
func TestARangeJudgesAChangedRowByItsNewVersion(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions, `create index on sessions (last_seen, id)`)
		w.fill("sessions", 10)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		b := w.lease(p, w.open(&p))
		tx, err := w.owner.Begin(t.Context())
		must(t, err)
		for _, change := range []string{
			`update sessions set last_seen = now() where id = 2`,        // not due any more
			`update sessions set note = 'touched' where id = 3`,         // due as before
			`delete from sessions where id = 4`,                         // gone
			`update sessions set id = 105 where id = 5`,                 // another key, due, within the range
			`update sessions set last_seen = '2000-01-01' where id = 6`, // due, before the range: nothing that the range has
			`update sessions set last_seen = 'infinity' where id = 7`,   // never due
		} {
			_, err = tx.Exec(t.Context(), change)
			must(t, err)
		}
		var got result
		done := inBackground(func() (err error) { got, err = w.call(b, nil); return err })
		(&world{t: t, admin: db.Connect(t)}).waitForLock()
		must(t, tx.Commit(t.Context()))
		must(t, <-done)
		if got.Picked != 10 || got.Deleted != 7 || got.Finished {
			t.Errorf("got %+v, want ten counted and seven deleted", got)
		}
		w.wantIDs("sessions", append([]int64{2, 7}, numbers(11, 20)...)...)
		w.wantLedger(1, 7)
	})
}

// loadedMeanwhile lets rows come into a range while its batch has counted it and not deleted: a trigger of the ledger, which
// only a superuser could make, lets another session load them.
func loadedMeanwhile(w *world, rows int) {
	w.t.Helper()
	must(w.t, runSQL(w.admin, `create extension dblink schema public`))
	must(w.t, w.script(fmt.Sprintf(`
		create function public.load() returns trigger language plpgsql security definer as $$ begin
		  perform public.dblink_exec(%s, 'insert into shop.sessions select 1000 + n, now() - interval ''40 days'' from generate_series(1, %d) n');
		  return null;
		end $$;
		create trigger load after insert on lapse.batch for each statement execute function public.load()`,
		schemas.Literal(fmt.Sprintf("host=%s port=%d dbname=%s user=postgres", w.admin.Config().Host, w.admin.Config().Port, w.db.Name)), rows)))
}

func TestRowsThatAreLoadedIntoARangeMeanwhileGoUpToTwiceTheLimit(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		for loaded, fits := range map[int]bool{10: true, 11: false} {
			t.Run(fmt.Sprint(loaded), func(t *testing.T) {
				w := newWorld(t, pgtest.New(t, db.Major), sessions, `create index on sessions (last_seen, id)`)
				w.fill("sessions", 11)
				p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
				loadedMeanwhile(w, loaded)
				b := w.lease(p, w.open(&p))
				b.Limit = 10
				got, err := w.call(b, nil)
				if !fits {
					wantState(t, err, schemas.SQLStateRange)
					w.wantRows("sessions", 22+loaded)
					w.wantLedger(0, 0)
					return
				}
				must(t, err)
				if got.Deleted != 20 || got.Picked != 20 {
					t.Errorf("got %+v, want ten rows that were counted and ten that were loaded", got)
				}
				w.wantLedger(1, 20)
			})
		}
	})
}

// A tie that is larger than a batch goes in the order of the table's file, and no row after it before it is gone.
func TestARangeEndsWithinATie(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table sessions (tenant int, id bigint, last_seen timestamptz not null, primary key (tenant, id))`, `create index on sessions (last_seen, tenant, id)`)
		w.do(`insert into sessions select n % 3, n, now() - interval '40 days' + (n / 20) * interval '1 second' from generate_series(0, 99) n`)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		r := w.open(&p)
		b := w.lease(p, r)
		b.Limit = 7
		for deleted := 0; deleted < 100; {
			want := min(7, 20-deleted%20)
			left := value[[]string](w, `select array_agg(tenant || ' ' || id) from (select tenant, id from sessions order by last_seen, ctid offset $1) s`, want)
			got, err := w.call(b, nil)
			must(t, err)
			if int(got.Deleted) != want || int(got.Picked) != want {
				t.Fatalf("after %d rows: got %+v, want %d", deleted, got, want)
			}
			deleted += int(got.Deleted)
			if now := value[[]string](w, `select array_agg(tenant || ' ' || id) from (select tenant, id from sessions order by last_seen, ctid) s`); strings.Join(now, ",") != strings.Join(left, ",") {
				t.Fatalf("after %d rows other rows are left than the ones after the range", deleted)
			}
		}
	})
}

// workOff works off a run in one shape, and returns how many batches deleted something.
func (w *world) workOff(p record.InForce, shape string, limit int, each func(b *batch)) (batches int, deleted int64) {
	w.t.Helper()
	r := w.open(&p)
	for b := w.leaseAny(p, r); b != nil; b = w.leaseAny(p, r) {
		b.Limit, b.Shape = limit, shape
		for got := (result{}); !got.Finished; {
			var err error
			got, err = w.call(b, nil)
			must(w.t, err)
			if deleted += got.Deleted; got.Deleted > 0 {
				batches++
			}
			if each != nil {
				each(b)
			}
		}
	}
	return batches, deleted
}

// Rows in no order at all, without an index: the heap takes them page by page, and in every shape exactly the due ones go.
func TestEveryShapeDeletesTheDueRowsAndNoOthers(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		for _, after := range []string{"1 month", "30 days"} { // not every candidate is due; each is
			table := "sessions_" + after[:1]
			w.do(`create table ` + table + ` (like sessions including all)`)
			w.apply(strings.Replace(policyText("shop."+table, "last_seen", after, "    state: armed"), "name: p", "name: "+table, 1))
			p := w.named(schemas.PolicyName(table))
			w.arm(p.ID)
			p = w.named(p.Name)
			for _, shape := range []string{functions.ShapeRange, functions.ShapePick, functions.ShapeHeap, functions.ShapeHeapPick} {
				w.do(`truncate ` + table)
				w.do(`insert into ` + table + ` select n, now() - n % 97 * interval '1 day', repeat('x', n % 500) from generate_series(1, 2000) n`)
				due := value[int64](w, `select count(*) from `+table+` where last_seen + $1::text::interval <= now()`, after)
				batches, deleted := w.workOff(p, shape, 300, nil)
				if deleted != due || batches < int(due/300) || batches > 12 {
					t.Errorf("%s, %s: %d rows went in %d batches, want %d", after, shape, deleted, batches, due)
				}
				if n := value[int64](w, `select count(*) from `+table+` where last_seen + $1::text::interval <= now()`, after); n != 0 {
					t.Errorf("%s, %s: %d due rows are left", after, shape, n)
				}
			}
		}
	})
}

// VACUUM FULL moves the rows that are left below the cursor of a heap: it is begun again.
func TestAHeapBeginsAnewInAFileThatWasWrittenAnew(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.fill("sessions", 500)
		w.do(`update sessions set note = repeat('x', 900)`)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		written := 0
		var passes []int
		batches, deleted := w.workOff(p, functions.ShapeHeap, 50, func(b *batch) {
			if written++; written == 3 {
				must(t, runSQL(w.admin, `vacuum full shop.sessions`))
			}
			if pass := valueOn[int](t, w.admin, `select pass from lapse.shard where id = $1`, b.Shard); pass == 1 {
				passes = append(passes, pass)
			}
		})
		if deleted != 500 || batches != 10 {
			t.Errorf("%d rows went in %d batches, want 500 in ten: none is left for the residual pass", deleted, batches)
		}
		if len(passes) < 10 {
			t.Errorf("the first pass had %d batches", len(passes))
		}
	})
}

// A batch in the one order knows nothing of a cursor in the other one, and begins again.
func TestShapesMayChangeFromBatchToBatch(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table sessions (id text primary key, last_seen timestamptz not null)`, `create index on sessions (last_seen, id)`)
		w.do(`insert into sessions select '(' || n % 7 || ',' || n || ')', now() - interval '40 days' + n % 13 * interval '1 hour' from generate_series(1, 1000) n`)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		r := w.open(&p)
		b := w.lease(p, r)
		b.Limit = 30
		shapes := []string{functions.ShapeHeap, functions.ShapeRange, functions.ShapePick, functions.ShapeHeapPick, functions.ShapeHeap, functions.ShapeRange, functions.ShapeHeapPick}
		var deleted int64
		for n := range 40 {
			b.Shape = shapes[n%len(shapes)]
			got, err := w.call(b, nil)
			must(t, err)
			deleted += got.Deleted
			if got.Finished {
				break
			}
		}
		_, rest := w.workOff(p, functions.ShapeRange, 100, nil)
		if n := value[int](w, `select count(*) from sessions`); n != 0 || deleted+rest != 1000 {
			t.Errorf("%d and %d rows were deleted, %d are left", deleted, rest, n)
		}
	})
}

func TestAHeapWithALockedRowFailsWholeAndItsPickPassesOverIt(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.fill("sessions", 10)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		b := w.lease(p, w.open(&p))
		tx, err := w.owner.Begin(t.Context())
		must(t, err)
		_, err = tx.Exec(t.Context(), `select from sessions where id = 2 for update`)
		must(t, err)
		must(t, runSQL(w.exec, `set lock_timeout = '50ms'`))
		b.Limit, b.Shape = 4, functions.ShapeHeap
		_, err = w.call(b, nil)
		wantState(t, err, schemas.SQLStateLockNotAvailable)
		w.wantLedger(0, 0)
		b.Shape = functions.ShapeHeapPick
		got, err := w.call(b, nil)
		must(t, err)
		if got.Deleted != 3 || got.Picked != 3 {
			t.Errorf("the pick got %+v", got)
		}
		b.Shape = functions.ShapeHeap
		for !got.Finished {
			if got, err = w.call(b, nil); err != nil {
				break
			}
		}
		wantState(t, err, schemas.SQLStateLockNotAvailable) // the residual pass meets it again
		b.Shape = functions.ShapeHeapPick
		for !got.Finished {
			got, err = w.call(b, nil)
			must(t, err)
		}
		if !got.LeftBehind {
			t.Error("the row that somebody had locked all the time is not said to be left")
		}
		must(t, tx.Rollback(t.Context()))
		w.wantIDs("sessions", append([]int64{2}, numbers(11, 20)...)...)
	})
}
