package planner

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"lapse/internal/pgtest"
	"lapse/planner/functions"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/planner/survey"
	"lapse/schemas"
)

// dated are tables of every type that ranges go by; where a candidate need not be due, too.
func dated(w *world) []record.InForce {
	entries := []string{}
	for _, t := range []struct{ name, of, expire string }{
		{"zoned", "timestamptz", "after: 30 days"},
		{"walled", "timestamp", "after: 30 days, zone: Asia/Tokyo"},
		{"daily", "date", "after: 30 days"},
		{"single", "timestamptz", "ttl_column: ttl"},
	} {
		w.do(fmt.Sprintf(`create table %s (id int primary key, at %s, ttl interval)`, t.name, t.of))
		entries = append(entries, fmt.Sprintf("  - {name: %[1]s, table: shop.%[1]s, expire: {column: at, %[2]s}, state: armed}\n", t.name, t.expire))
	}
	w.armed("policies:\n" + strings.Join(entries, ""))
	return w.inForce()
}

// spread puts rows into a table, so many days old each; it returns how many are due.
func spread(w *world, table string, days []int) (due int) {
	w.do("truncate " + table)
	for _, d := range days {
		if d > 30 {
			due++
		}
	}
	w.do(`insert into `+table+` select n, date_trunc('day', now() at time zone 'UTC') - d * interval '1 day', '30 days' from unnest($1::int[]) with ordinality r(d, n)`, days)
	w.do(`insert into ` + table + ` values (-1, null, '30 days'), (-2, 'infinity', '30 days'), (-3, '-infinity', '30 days')`)
	return due
}

// openAt opens a run as the executor's login, with cuts.
func (w *world) openAt(p *record.InForce, cuts ...survey.Cut) (record.Run, error) {
	w.t.Helper()
	return run.Open(w.t.Context(), w.exec, p, time.Now, run.Options{Cuts: cuts})
}

// slicesOf leases the slices of a run, without its residual shards.
func (w *world) slicesOf(p record.InForce, r record.Run) (all []*batch) {
	w.t.Helper()
	n := valueOn[int](w.t, w.exec, `select count(*)::int from lapse.shard where run = $1 and not residual`, r.ID)
	for range n {
		all = append(all, w.lease(p, r))
	}
	return all
}

// work calls batches of a shard until it is done.
func (w *world) work(b *batch) (picked int64) {
	w.t.Helper()
	for {
		got, err := w.call(b, nil)
		must(w.t, err)
		if picked += got.Picked; got.Finished {
			return picked
		}
	}
}

// would is how many rows a batch of a shard would take, of all that are there.
func (w *world) would(b *batch) int64 {
	w.t.Helper()
	var got result
	undo := errors.New("undo")
	err := pgx.BeginFunc(w.t.Context(), w.exec, func(tx pgx.Tx) error {
		var err error
		if got, err = w.callIn(tx, b, nil); err != nil {
			return err
		}
		return undo
	})
	if !errors.Is(err, undo) {
		w.t.Fatal(err)
	}
	return got.Picked
}

// Whatever the cuts are, each due row is in one range and no other row is in any: ties are not torn apart, and what has no place
// in time is left alone.
func TestRangesAreDisjointAndComplete(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		all := dated(w)
		today := value[time.Time](w, `select date_trunc('day', now() at time zone 'UTC') at time zone 'UTC'`)
		edges := []time.Time{time.Date(-4000, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(200000, 1, 1, 0, 0, 0, 0, time.UTC)}
		rapid.Check(t, func(rt *rapid.T) {
			p := rapid.SampledFrom(all).Draw(rt, "table")
			day := rapid.OneOf(rapid.IntRange(20, 28), rapid.IntRange(32, 44))
			due := spread(w, string(p.Name), rapid.SliceOfN(day, 0, 40).Draw(rt, "days"))
			var cuts []survey.Cut
			for _, hours := range rapid.SliceOfNDistinct(rapid.IntRange(-46*4, -20*4), 0, 5, rapid.ID).Draw(rt, "quarters of days") {
				cuts = append(cuts, survey.Cut{Leaf: p.TableOID, At: today.Add(time.Duration(hours) * 6 * time.Hour)})
			}
			if rapid.Bool().Draw(rt, "edges") {
				cuts = append(cuts, survey.Cut{Leaf: p.TableOID, At: edges[0]}, survey.Cut{Leaf: p.TableOID, At: edges[1]})
			}
			slices.SortFunc(cuts, func(a, b survey.Cut) int { return a.At.Compare(b.At) })
			r, err := w.openAt(&p, cuts...)
			must(t, err)
			batches := w.slicesOf(p, r)
			var would, did int64
			for _, b := range batches {
				b.Limit = 100
				would += w.would(b)
			}
			limit := rapid.IntRange(4, 50).Draw(rt, "limit")
			for _, b := range batches {
				b.Limit = limit
				did += w.work(b)
			}
			left := value[int](w, `select count(*)::int from `+string(p.Name)+` where id > 0 and at < now() - interval '30 days'`)
			if len(batches) != len(cuts)+1 || would != int64(due) || did != int64(due) || left != 0 {
				rt.Fatalf("%d ranges of %d cuts would take %d of %d due rows, took %d and left %d", len(batches), len(cuts), would, due, did, left)
			}
			if total := w.deleteAll(p, r, 10); total.Deleted != 0 {
				rt.Fatalf("%d rows went with the residual shard", total.Deleted)
			}
		})
	})
}

func TestARowThatMovesIntoARangeThatIsDoneGoesWithTheResidualShard(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		_ = dated(w)
		p := w.named("zoned")
		spread(w, "zoned", []int{60, 60, 50, 40, 40, 35})
		r, err := w.openAt(&p, survey.Cut{Leaf: p.TableOID, At: time.Now().AddDate(0, 0, -45)})
		must(t, err)
		batches := w.slicesOf(p, r)
		if w.leaseAny(p, r).Shard != batches[0].Shard {
			t.Error("the residual shard was given out before the ranges were done")
		}
		batches = w.slicesOf(p, r)
		slices.SortFunc(batches, func(a, b *batch) int { return int(a.Shard - b.Shard) })
		if got := w.work(batches[0]); got != 3 {
			t.Errorf("the lower range had %d rows", got)
		}
		w.do(`update zoned set at = at - interval '20 days' where id = 4`)
		if got := w.work(batches[1]); got != 2 {
			t.Errorf("the upper range had %d rows", got)
		}
		if total := w.deleteAll(p, r, 10); total.Deleted != 1 {
			t.Errorf("the residual shard took %d rows", total.Deleted)
		}
		if got := value[int](w, `select count(*)::int from zoned`); got != 3 {
			t.Errorf("%d rows are left", got)
		}
	})
}

// A worker that is done with its range says so, whatever is due in those of others. The range has no residual pass of its own.
func TestARangeIsDoneWithItsLastRowAndLeavesNoneBehind(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		_ = dated(w)
		p := w.named("zoned")
		spread(w, "zoned", []int{60, 50, 44, 43, 41, 40})
		r, err := w.openAt(&p, survey.Cut{Leaf: p.TableOID, At: time.Now().AddDate(0, 0, -45)}, survey.Cut{Leaf: p.TableOID, At: time.Now().AddDate(0, 0, -42)})
		must(t, err)
		for i, b := range w.slicesOf(p, r) {
			b.Limit = 1
			for row := range 2 {
				got, err := w.call(b, nil)
				must(t, err)
				if got.LeftBehind || got.Finished != (row == 1) {
					t.Errorf("after row %d range %d says %+v", row+1, i, got)
				}
			}
		}
	})
}

// A row that a range met locked is left behind, and the run says so until the residual shard has tried it again.
func TestARowThatARangeMetLockedIsLeftToTheResidualShard(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		_ = dated(w)
		p := w.named("zoned")
		for name, gone := range map[string]bool{"the lock has gone when the residual shard comes": true, "it has not": false} {
			w.do(`delete from zoned`)
			spread(w, "zoned", []int{60, 50, 44, 40})
			r, err := w.openAt(&p, survey.Cut{Leaf: p.TableOID, At: time.Now().AddDate(0, 0, -45)})
			must(t, err)
			locker, err := db.Connect(t).Begin(t.Context())
			must(t, err)
			_, err = locker.Exec(t.Context(), `select from shop.zoned where id = 2 for update`)
			must(t, err)
			behind := func() int {
				return valueOn[int](w.t, w.exec, `select count(*)::int from lapse.shard where run = $1 and left_behind`, r.ID)
			}
			for _, b := range w.slicesOf(p, r) {
				b.Shape = functions.ShapePick
				w.work(b)
			}
			if n := behind(); n != 1 {
				t.Errorf("%s: %d ranges have left rows, want 1", name, n)
			}
			if gone {
				must(t, locker.Rollback(t.Context()))
			}
			residual := w.leaseAny(p, r)
			residual.Shape = functions.ShapePick
			picked, want := w.work(residual), int64(0)
			if gone {
				want = 1
			}
			if n := behind(); picked != want || n != int(1-want) {
				t.Errorf("%s: the residual shard picked %d rows, and %d shards have left rows", name, picked, n)
			}
			if !gone {
				must(t, locker.Rollback(t.Context()))
			}
			_, err = w.exec.Exec(t.Context(), `select lapse.close_run($1, null, null, null, null)`, r.ID)
			must(t, err)
		}
	})
}

func TestAStolenExecutorsCutsAreRefusedOrDoNoHarm(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		_ = dated(w)
		w.do(`create table hashed (id int primary key, at timestamptz)`)
		w.do(`create table counted (id int primary key, at bigint)`)
		w.armed(`policies:
  - {name: hashed, table: shop.hashed, expire: {column: at, after: 30 days}, shards: {count: 2}, state: armed}
  - {name: counted, table: shop.counted, expire: {column: at, epoch: s, after: 30 days}, state: armed}
`)
		p := w.named("zoned")
		try := func(p record.InForce, leaves, cuts string) error {
			return runSQL(w.exec, fmt.Sprintf(`select lapse.open_run(%d, %d, '%s', %s, %s, '{}', null, null)`, p.ID, p.Version, uuid.New(), leaves, cuts))
		}
		leaf := fmt.Sprint(p.TableOID)
		for what, bad := range map[string][2]string{
			"out of order": {"array[" + leaf + "," + leaf + "]::oid[]", "'{2026-01-02,2026-01-01}'"}, "twice": {"array[" + leaf + "," + leaf + "]::oid[]", "'{2026-01-02,2026-01-02}'"},
			"of nothing": {"'{}'", "'{2026-01-02}'"}, "without instant": {"array[" + leaf + "]::oid[]", "'{}'"}, "null": {"array[" + leaf + "]::oid[]", "array[null]::timestamptz[]"},
			"of null": {"array[null]::oid[]", "'{2026-01-02}'"}, "infinite": {"array[" + leaf + "]::oid[]", "'{-infinity}'"}, "nothing at all": {"null", "null"}, "one null": {"null", "'{}'"},
			"in two dimensions": {"array[array[" + leaf + "]]::oid[]", "'{{2026-01-02}}'"},
			"too many":          {"array_fill(" + leaf + "::oid, array[1025])", "array(select now() + n * interval '1 s' from generate_series(1, 1025) n)"},
		} {
			if err := try(p, bad[0], bad[1]); schemas.StateOf(err) != schemas.SQLStateInvalidParameterValue {
				t.Errorf("%s: %v", what, err)
			}
		}
		for _, name := range []schemas.PolicyName{"hashed", "counted"} {
			other := w.named(name)
			wantState(t, try(other, fmt.Sprintf("array[%d]::oid[]", other.TableOID), "'{2026-01-02}'"), schemas.SQLStateInvalidParameterValue)
			for _, heaps := range []string{"null", fmt.Sprintf("'{%d}'", other.TableOID)} {
				wantState(t, runSQL(w.exec, fmt.Sprintf(`select lapse.open_run(%d, %d, '%s', '{}', '{}', %s, null, null)`, other.ID, other.Version, uuid.New(), heaps)), schemas.SQLStateInvalidParameterValue)
			}
		}

		// As many as there may be, one of them of another relation; then some that put all rows into one range.
		must(t, try(p, "array_fill("+leaf+"::oid, array[1023]) || 'lapse.gate'::regclass::oid", "array(select now() - n * interval '1 hour' from generate_series(1023, 1, -1) n) || timestamptz '2026-01-01'"))
		if r := w.open(&p); !r.Resumed || r.Shards != 1025 {
			t.Errorf("the run has %d shards", r.Shards)
		}
		must(t, runSQL(w.admin, `update lapse.shard set done = true`))
		due := spread(w, "zoned", []int{60, 50, 40, 20})
		must(t, try(p, "array_fill("+leaf+"::oid, array[3])", "'{4000-01-01 BC, 0001-01-01, 200000-01-01}'"))
		r := w.open(&p)
		if total := w.deleteAll(p, r, 10); total.Deleted != int64(due) {
			t.Errorf("%d of %d due rows were deleted", total.Deleted, due)
		}
	})
}

func TestALeafOfWhichARangeWasPutAsideKeepsItsRanges(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		_ = dated(w)
		p := w.named("walled")
		day := func(n int) survey.Cut {
			return survey.Cut{Leaf: p.TableOID, At: time.Date(2025, 1, n, 5, 0, 0, 0, time.FixedZone("", 3600))}
		}
		const shards = `select string_agg(concat_ws('/', slice, lower, upper, residual, case when aside then tries end), ' ' order by slice) from lapse.shard where run = $1`
		const cut = `0/{"2025-01-01 04:00:00"}/f 1/{"2025-01-01 04:00:00"}/{"2025-01-02 04:00:00"}/f%s 2/{"2025-01-02 04:00:00"}/f 3/t`
		r, err := w.openAt(&p, day(1), day(2))
		must(t, err)
		if got := valueOn[string](t, w.exec, shards, r.ID); got != fmt.Sprintf(cut, "") {
			t.Errorf("the shards are %s", got)
		}
		must(t, runSQL(w.admin, `update lapse.shard set done = slice <> 1, aside = slice = 1, tries = 3, retry_at = clock_timestamp() + interval '1 hour', sqlstate = '23503'`))
		if r, err = w.openAt(&p, day(7)); err != nil || r.Resumed || r.Shards != 3 {
			t.Errorf("the next run: %+v, %v", r, err)
		}
		if got := valueOn[string](t, w.exec, shards, r.ID); got != fmt.Sprintf(cut, "/3") {
			t.Errorf("the shards after one was put aside are %s", got)
		}
		must(t, runSQL(w.admin, `update lapse.shard set done = true`))
		r = w.open(&p)
		if got := valueOn[string](t, w.exec, shards, r.ID); got != "0/f" {
			t.Errorf("the shards after all were done are %s", got)
		}
	})
}

// A slice's bounds are of a column that has an index. A batch by the file does not go by it: what it cuts off would be no part of
// the file, and it would pass over the rest.
func TestASliceThatGoesByTheFileLeavesNoRowOut(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions, `create index on sessions (last_seen, id)`)
		w.do(`insert into sessions select n, now() - interval '40 days' - (n * 7919 % 10007) * interval '1 minute' from generate_series(1, 10000) n`)
		w.do(`analyze sessions`)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		cut := time.Now().Add(-46*24*time.Hour - 22*time.Hour - 34*time.Minute).Truncate(time.Second)
		r, err := w.openAt(&p, survey.Cut{Leaf: p.TableOID, At: cut})
		must(t, err)
		first := "(select min(ctid) from sessions where last_seen <= '" + cut.Format(time.RFC3339) + "')"
		b := w.slicesOf(p, r)[0]
		for _, shape := range []string{functions.ShapeHeapPick, functions.ShapeHeap} {
			b.Shape, b.Limit = shape, 1
			before := value[string](w, "select id::text from sessions where ctid = "+first)
			_, err := w.call(b, nil)
			must(t, err)
			if after := value[string](w, "select id::text from sessions where ctid = "+first); after == before {
				t.Errorf("a batch by the file (%s) did not take the first due row of its slice in it", shape)
			}
		}
	})
}
