package planner

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lapse/internal/pgtest"
	"lapse/planner/functions"
	"lapse/schemas"
)

// beside is one row of a registry in the oracle's world, and whether the table has the row.
type beside struct {
	off  int // days before now; 0: an instant that never comes
	from string
}

// drawRegistry draws rows of a registry: first some that no leaf has, often just as many as a batch checks; then many due at one instant, many
// that a leaf does not have, and some that are never due.
func drawRegistry(rt *rapid.T) []beside {
	ahead := slices.Repeat([]beside{{9, "nobody"}}, rapid.SampledFrom([]int{0, 7, 8, 9, 16, 17}).Draw(rt, "ahead"))
	return append(ahead, rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) beside {
		return beside{
			rapid.OneOf(rapid.Just(5), rapid.IntRange(-3, 8)).Draw(rt, "days"),
			rapid.SampledFrom([]string{"eu", "eu", "us", "nobody", "nobody", "nobody"}).Draw(rt, "from"),
		}
	}), 0, 30).Draw(rt, "registry")...)
}

// Whatever the registry has, and however small the batches are, a run deletes what a second opinion calls due and nothing else, with no
// more batches than candidates ask for.
func TestARunWithARegistryDeletesWhatTheOracleCallsDue(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table carts (id int, region text, primary key (region, id)) partition by list (region)`,
			`create table carts_eu partition of carts for values in ('eu')`, `create table carts_us partition of carts for values in ('us')`,
			`create table registry (id int, region text, expires timestamptz, primary key (id, region))`, `create index on registry (expires)`)
		p := w.armed(sidecarPolicy)
		kept := 0
		rapid.Check(t, func(rt *rapid.T) {
			ctx, rows := context.Background(), drawRegistry(rt)
			var want []int32
			sql := []string{`truncate carts, registry`}
			stays := -1
			if rapid.Bool().Draw(rt, "quarantine") && len(rows) > 0 {
				stays = rapid.IntRange(0, len(rows)-1).Draw(rt, "stays")
				kept++
			}
			for n, r := range rows {
				at := "'infinity'"
				if r.off != 0 {
					at = fmt.Sprintf("now() - interval '%d days'", r.off)
				}
				sql = append(sql, fmt.Sprintf("insert into registry values (%d, '%s', %s)", n, r.from, at))
				if r.from == "nobody" {
					continue
				}
				sql = append(sql, fmt.Sprintf("insert into carts values (%d, '%s')", n, r.from))
				if r.off <= 0 || n == stays {
					want = append(want, int32(n)) //nolint:gosec // it is below 50
				}
			}
			plant(w, strings.Join(sql, ";"))
			must(t, runSQL(w.admin, `delete from lapse.quarantine`))
			if stays >= 0 && rows[stays].from != "nobody" {
				w.rest(&p, "shop.carts_"+rows[stays].from, "1 hour", []string{rows[stays].from, fmt.Sprint(stays)})
			}
			limit, batches := rapid.SampledFrom([]int{1, 1, 2, 3, 100}).Draw(rt, "limit"), 0
			run := w.open(&p)
			for b := w.leaseAny(p, run); b != nil; b = w.leaseAny(p, run) {
				b.Limit, b.Shape = limit, rapid.SampledFrom([]string{functions.ShapeRange, functions.ShapePick}).Draw(rt, "shape")
				for done := false; !done; batches++ {
					got, err := w.call(b, nil)
					must(t, err)
					if done = got.Finished; batches > 4*len(rows)+8 {
						rt.Fatalf("after %d batches of %d rows the run is not over: %+v", batches, limit, rows)
					}
				}
			}
			var got []int32
			if err := w.owner.QueryRow(ctx, `select array_agg(id order by id) from carts`).Scan(&got); err != nil {
				rt.Fatal(err)
			}
			if !slices.Equal(got, want) {
				rt.Fatalf("rows %v are left, want %v, of %+v", got, want, rows)
			}
		})
		if kept == 0 {
			t.Error("no row was ever in quarantine")
		}
	})
}

// Whatever a finding function returns, the deletion deletes no row but those that a registry calls due.
func TestNothingThatFindReturnsMakesADeletionWithARegistryDeleteMore(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, registered[:3]...)
		w.do(`insert into carts select n, 'x' from generate_series(1, 60) n`)
		w.do(`insert into registry select n, now() - interval '1 day' * case when n <= 30 then 1 else -1 end from generate_series(1, 60) n where n <> 20`)
		p := w.armed(sidecarPolicy)
		b := w.lease(p, w.open(&p))
		db.Exec(t, `create or replace function lapse.find_1_1(claim lapse.claim, work lapse.work, place lapse.place) returns lapse.aim language plpgsql stable as
			$$ begin return (select a from jsonb_populate_record(null::lapse.aim, current_setting('find.says')::jsonb) a); end $$`)
		w.do("grant usage on schema shop to " + testRoles.Executor + "; grant select on carts to " + testRoles.Executor)
		most := int64(0)
		rapid.Check(t, func(rt *rapid.T) {
			tx, err := w.exec.Begin(t.Context())
			must(t, err)
			defer func() { _ = tx.Rollback(t.Context()) }()
			_, err = tx.Exec(t.Context(), `select set_config('find.says', $1, true)`, drawAim(rt))
			must(t, err)
			b.Limit = rapid.SampledFrom([]int{10, 1000}).Draw(rt, "limit")
			b.Shape = rapid.SampledFrom([]string{functions.ShapeRange, functions.ShapePick}).Draw(rt, "shape")
			got, err := w.callIn(tx, b, nil)
			if err != nil {
				return // all or nothing
			}
			var stay int
			must(t, tx.QueryRow(t.Context(), `select count(*) from shop.carts where id > 30 or id = 20`).Scan(&stay))
			if most = max(most, got.Deleted); stay != 31 {
				rt.Fatalf("it deletes %d rows that must stay", 31-stay)
			}
		})
		if most == 0 {
			t.Error("no row was ever deleted: the test shows nothing")
		}
	})
}

// elsewhere lets the application run statements, each in a transaction of its own and of another session's, when a function of the server
// calls public.elsewhere. What waits for a lock gives up.
func elsewhere(w *world, statements ...string) {
	w.t.Helper()
	must(w.t, runSQL(w.admin, `create extension dblink schema public`))
	w.do(`create table refused (statement text)`)
	var calls strings.Builder
	for _, s := range statements {
		do := fmt.Sprintf(`set lock_timeout = '50ms'; do $do$ begin %s; exception when lock_not_available then insert into shop.refused values (%s); end $do$`, s, schemas.Literal(s))
		fmt.Fprintf(&calls, "perform public.dblink_exec(%s, %s);\n",
			schemas.Literal(fmt.Sprintf("host=%s port=%d dbname=%s user=postgres", w.admin.Config().Host, w.admin.Config().Port, w.db.Name)), schemas.Literal(do))
	}
	must(w.t, w.script(`create function public.elsewhere() returns void language plpgsql security definer as $$ begin `+calls.String()+` end $$`))
}

// afterTheSearch has a batch that has found rows call public.elsewhere before it locks or deletes them.
func afterTheSearch(w *world) {
	w.t.Helper()
	must(w.t, w.script(`
		alter function lapse.find_1_1 rename to found_1_1;
		create function lapse.find_1_1(claim lapse.claim, work lapse.work, place lapse.place) returns lapse.aim language plpgsql stable as
		$$ declare aim lapse.aim := lapse.found_1_1(claim, work, place); begin
		  if aim.counted > 0 then perform public.elsewhere(); end if;
		  return aim;
		end $$`))
}

// Between the lock and the DELETE nobody can give a row that goes another time, take its registry's row away to write it anew, or change it.
func TestWhatABatchWithARegistryLockedNobodyChanges(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, registered...)
		p := w.armed(sidecarPolicy)
		elsewhere(w,
			`update shop.registry set expires = now() + interval '1 day' where id = 1`,
			`delete from shop.registry where id = 2; insert into shop.registry values (2, now() + interval '1 day')`,
			`update shop.carts set id = 103 where id = 3`,
			`update shop.registry set expires = now() - interval '1 day' where id = 4`, // it falls due now, and the residual pass finds it
			`insert into shop.carts values (9, 'x'); insert into shop.registry values (9, now() + interval '1 day')`)
		must(t, w.script(`
			create function public.meanwhile() returns trigger language plpgsql security definer as $$ begin perform public.elsewhere(); return null; end $$;
			create trigger meanwhile after insert on lapse.batch for each statement when (pg_trigger_depth() < 1) execute function public.meanwhile()`))
		b := w.lease(p, w.open(&p))
		b.Limit, b.Shape = 3, functions.ShapePick
		got, err := w.call(b, nil)
		must(t, err)
		if got.Picked != 3 || got.Deleted != 3 {
			t.Errorf("the batch deleted %+v, want 1, 2 and 3", got)
		}
		if n := value[int](w, `select count(*) from refused`); n != 3 {
			t.Errorf("%d statements waited for the batch, want 3", n)
		}
		must(t, runSQL(w.admin, `drop trigger meanwhile on lapse.batch`))
		for !got.Finished {
			got, err = w.call(b, nil)
			must(t, err)
		}
		if got := value[[]int32](w, `select array_agg(id order by id) from carts`); !slices.Equal(got, []int32{5, 6, 7, 9}) {
			t.Errorf("rows %v are left", got)
		}
	})
}

// What changes after a batch has found its rows and before it locks them stays, or goes as what it has become.
func TestARowThatChangesBeforeABatchWithARegistryLocksItIsJudgedAnew(t *testing.T) {
	t.Parallel()
	// A pick passes over what is at another address than it was. Else the registry's rows are given: 5 and 6 are due as they are.
	for shape, want := range map[string]int64{functions.ShapePick: 1, functions.ShapeRange: 3} {
		t.Run(shape, func(t *testing.T) { t.Parallel(); heavyChangesBeforeALock(t, shape, want) })
	}
}

func heavyChangesBeforeALock(t *testing.T, shape string, want int64) {
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, registered[:3]...)
		w.do(`insert into carts select n, 'x' from generate_series(1, 8) n`)
		w.do(`insert into registry select n, now() - interval '1 day' from generate_series(1, 8) n`)
		p := w.armed(sidecarPolicy)
		elsewhere(w,
			`update shop.registry set expires = now() + interval '1 day' where id = 1`,                               // extended
			`delete from shop.registry where id = 2; insert into shop.registry values (2, now() + interval '1 day')`, // the same key again
			`delete from shop.registry where id = 3`,                                                                 // nobody knows when
			`update shop.carts set id = 104 where id = 4`,                                                            // moved to a key that is not registered
			`delete from shop.carts where id = 5; insert into shop.carts values (5, 'y')`,                            // another row of the key, due
			`update shop.carts set note = 'y' where id = 6`,                                                          // at another address, due
			`update shop.registry set id = 70 where id = 7`)                                                          // the registry's row is another's
		afterTheSearch(w)
		b := w.lease(p, w.open(&p))
		b.Limit, b.Shape = 8, shape
		got, err := w.call(b, nil)
		must(t, err)
		if got.Deleted != want {
			t.Errorf("the batch deleted %+v, want %d", got, want)
		}
		must(t, w.script(`drop function lapse.find_1_1; alter function lapse.found_1_1 rename to find_1_1`))
		for !got.Finished {
			got, err = w.call(b, nil)
			must(t, err)
		}
		if got := value[[]int32](w, `select array_agg(id order by id) from carts`); !slices.Equal(got, []int32{1, 2, 3, 7, 104}) {
			t.Errorf("rows %v are left", got)
		}
		if n := value[int](w, `select count(*) from refused`); n != 0 {
			t.Errorf("%d statements waited for the batch before it locked", n)
		}
	})
}
