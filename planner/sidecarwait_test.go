package planner

import (
	"slices"
	"testing"

	"lapse/internal/pgtest"
	"lapse/planner/functions"
	"lapse/schemas"
)

// A batch waits for rows that the application has changed and not committed, of the table and of the registry, and then each row is judged by
// what it has become: 4, another row by now, 5 and 9, which are changed, and 8 are due. Those that moved in their files may be left for the next pass.
func TestABatchThatWaitsForARegistryJudgesWhatItsRowsHaveBecome(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, registered[:3]...)
		w.do(`insert into carts select n, 'x' from generate_series(1, 9) n`)
		w.do(`insert into registry select n, now() - interval '1 day' from generate_series(1, 9) n`)
		p := w.armed(sidecarPolicy)
		changing, err := w.owner.Begin(t.Context())
		must(t, err)
		for _, change := range []string{
			`update carts set note = 'y' where id = 1`, `update registry set expires = now() + interval '1 day' where id = 1`,
			`delete from registry where id = 2`, `insert into registry values (2, now() + interval '1 day')`,
			`update carts set id = 103 where id = 3`,
			`delete from carts where id = 4`, `insert into carts values (4, 'y')`,
			`update carts set note = 'y' where id = 5`,
			`update registry set id = 60 where id = 6`,
			`update registry set expires = null where id = 7`,
			`update registry set expires = expires - interval '1 hour' where id = 9`,
		} {
			_, err = changing.Exec(t.Context(), change)
			must(t, err)
		}
		b := w.lease(p, w.open(&p))
		b.Limit, b.Shape = 100, functions.ShapeRange
		var got result
		done := inBackground(func() (err error) { got, err = w.call(b, nil); return err })
		w.waitForLock()
		must(t, changing.Commit(t.Context()))
		must(t, <-done)
		if got.Finished || got.Deleted < 2 { // 5 and 8 at least
			t.Errorf("the batch deleted %+v", got)
		}
		for !got.Finished {
			got, err = w.call(b, nil)
			must(t, err)
		}
		if left := value[[]int32](w, `select array_agg(id order by id) from carts`); !slices.Equal(left, []int32{1, 2, 6, 7, 103}) {
			t.Errorf("rows %v are left", left)
		}
	})
}

// A row of the registry that moves in its file between search and DELETE stays, though it is due. The run says so, also if that is in its last pass.
func TestARegistrysRowThatMovesInTheLastPassIsSaidToBeLeft(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, registered[:3]...)
		w.do(`insert into carts values (1, 'x'), (2, 'x')`)
		w.do(`insert into registry values (1, now() - interval '2 days'), (2, now() - interval '1 day')`)
		p := w.armed(sidecarPolicy)
		elsewhere(w, `update shop.registry set expires = expires - interval '1 hour' where id = 2`)
		changing, err := w.owner.Begin(t.Context())
		must(t, err)
		_, err = changing.Exec(t.Context(), `select from carts where id = 2 for update`)
		must(t, err)
		b := w.lease(p, w.open(&p))
		b.Shape = functions.ShapePick
		for _, b.Limit = range []int{1, 100} {
			got, err := w.call(b, nil)
			must(t, err)
			if got.Finished {
				t.Fatalf("the first pass ended as %+v", got)
			}
		}
		must(t, changing.Rollback(t.Context()))
		afterTheSearch(w)
		b.Shape = functions.ShapeRange
		got, err := w.call(b, nil)
		must(t, err)
		if got.Deleted != 0 || !got.Finished || !got.LeftBehind {
			t.Errorf("the last pass ended as %+v", got)
		}
	})
}

// An application that changes a row and then extends its time waits no longer than the batch waits for it: the batch gives up, whole, and a pick
// passes over the row. The application is not the victim of a deadlock.
func TestAnApplicationThatChangesARowAndThenItsTimeIsNoVictim(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, registered...)
		p := w.armed(sidecarPolicy)
		changing, err := w.owner.Begin(t.Context())
		must(t, err)
		_, err = changing.Exec(t.Context(), `update carts set note = 'y' where id = 2`)
		must(t, err)
		must(t, runSQL(w.exec, `set lock_timeout = '250ms'`))
		b := w.lease(p, w.open(&p))
		b.Shape = functions.ShapeRange
		failed := inBackground(func() error { _, err := w.call(b, nil); return err })
		w.waitForLock()
		_, err = changing.Exec(t.Context(), `update registry set expires = now() + interval '1 day' where id = 2`)
		must(t, err)
		wantState(t, <-failed, schemas.SQLStateLockNotAvailable)
		b.Shape = functions.ShapePick
		got, err := w.call(b, nil)
		must(t, err)
		must(t, changing.Commit(t.Context()))
		if left := value[[]int32](w, `select array_agg(id order by id) from carts`); got.Deleted != 2 || !slices.Equal(left, []int32{2, 4, 5, 6, 7}) {
			t.Errorf("the pick deleted %+v, and rows %v are left", got, left)
		}
	})
}

// A search reads the registry alone where a foreign key says that each of its rows has its row in the table, and none has to stay.
func TestASearchReadsTheRegistryAloneWhereEachOfItsRowsHasItsRow(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, registered[0], `create table registry (id int primary key, expires timestamptz, other int, constraint registry_leads foreign key (id) references carts on delete cascade)`, registered[2])
		w.do(`insert into carts select n, 'x' from generate_series(1, 20) n`)
		w.do(`insert into registry select n, now() - interval '10 days' + n * interval '1 day', n from generate_series(1, 20) n`)
		p := w.armed(sidecarPolicy)
		for _, c := range []struct {
			shape, key, spared string
			scans              int64
		}{
			{"range", "", "", 8},
			{"range", "foreign key (other) references carts on delete cascade", "", 8},
			{"range", "foreign key (id) references carts on delete cascade not valid", "", 8},
			{"range", "foreign key (id) references carts on delete cascade", "t.id = 3", 9},
			{"pick", "foreign key (id) references carts on delete cascade", "", 8},
			{"range", "foreign key (id) references carts on delete cascade", "", 0},
		} {
			w.do(`alter table registry drop constraint if exists registry_leads`)
			if c.key != "" {
				w.do(`alter table registry add constraint registry_leads ` + c.key)
			}
			tx, err := w.admin.Begin(t.Context())
			must(t, err)
			_, err = tx.Exec(t.Context(), `set local enable_seqscan = off; set local enable_bitmapscan = off; set local enable_hashjoin = off; set local enable_mergejoin = off`)
			must(t, err)
			var found, before, scans int64
			const scanned = `select pg_stat_get_xact_numscans('shop.carts_pkey'::regclass)`
			must(t, tx.QueryRow(t.Context(), scanned).Scan(&before))
			must(t, tx.QueryRow(t.Context(), `
				select f.counted from lapse.find_1_1(
				  jsonb_populate_record(null::lapse.claim, jsonb_build_object('cutoff', now(), 'target', 'shop.carts'::regclass::oid)),
				  jsonb_populate_record(null::lapse.work, jsonb_build_object('row_limit', 8, 'shape', $1::text)),
				  jsonb_populate_record(null::lapse.place, jsonb_build_object('leaf', 'shop.carts', 'pass', 1, 'spared', $2::text))) f`, c.shape, c.spared).Scan(&found))
			must(t, tx.QueryRow(t.Context(), scanned).Scan(&scans))
			must(t, tx.Rollback(t.Context()))
			if found != 8 || scans-before != c.scans {
				t.Errorf("%+v: %d rows were found by %d scans of the table's index", c, found, scans-before)
			}
		}
		if total := w.deleteAll(p, w.open(&p), 4); total.Deleted != 10 {
			t.Errorf("%+v was deleted, want 10 rows", total)
		}
	})
}
