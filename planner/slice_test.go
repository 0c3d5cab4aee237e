package planner

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"lapse/internal/pgtest"
	"lapse/planner/expiry"
	"lapse/planner/functions"
	"lapse/schemas"
)

// Every row is in exactly one slice, whatever its columns are, and it is the same one on every major.
func TestSlicesAreDisjointAndComplete(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		tables := makePaged(w)
		w.do(`create table hostile (at timestamptz, "A b" text, "it's ""x""" int, "$1" timestamptz)`)
		w.do(`insert into hostile select null, nullif(n % 3, 0)::text, nullif(n % 7, 0), nullif(now() - n * interval '1 day', now()) from generate_series(0, 200) n`)
		for i := range tables {
			must(t, tables[i].fill(t.Context(), w.owner, make([]int, 90)))
		}
		hash := functions.SliceHash([]string{"A b", `it's "x"`})
		if got := value[int64](w, `select `+hash+` from (values ('x', 42)) t("A b", "it's ""x""")`); got != 2664336421136413050 {
			t.Errorf("the hash of a row is %d: shards that are under way would change", got)
		}
		rapid.Check(t, func(rt *rapid.T) {
			name, columns := "hostile", []string{"A b", `it's "x"`, "$1"}
			if i := rapid.IntRange(-1, len(tables)-1).Draw(rt, "table"); i >= 0 {
				name = tables[i].name
				columns = value[[]string](w, `select array_agg(attname::text) from pg_attribute where attrelid = $1::text::regclass and attnum > 0`, name)
			}
			columns = columns[:rapid.IntRange(1, len(columns)).Draw(rt, "columns")]
			d := functions.Definition{}
			for _, c := range columns {
				d.Slices = append(d.Slices, expiry.Column{Name: c})
			}
			modulus := rapid.IntRange(2, 64).Draw(rt, "modulus")
			var all, odd int
			err := w.owner.QueryRow(t.Context(), fmt.Sprintf(`select count(*), count(*) filter (where n <> 1)
				from (select (select count(*) from generate_series(0, %d) r where %s) as n from %s t) x`, modulus-1, d.Slice(fmt.Sprint(modulus), "r"), name)).Scan(&all, &odd)
			if err != nil || all == 0 || odd != 0 {
				rt.Fatalf("%s by %q in %d: %d of %d rows are not in one slice, %v", name, columns, modulus, odd, all, err)
			}
		})
	})
}

func TestALeafIsWorkedOffInSlices(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		partitioned(w)
		w.do(`insert into events select n, (array['eu', 'us', 'asia'])[n % 3 + 1], case when n % 2 = 0 then now() - interval '1 year' else now() end from generate_series(1, 600) n`)
		_, err := w.difference(policyText("shop.events", "last_seen", "30 days", "    shards: {by: [nothing], count: 3}"), false)
		if err == nil || !strings.Contains(err.Error(), `has no column "nothing"`) {
			t.Errorf("by a column that is not there: %v", err)
		}
		p := w.armed(policyText("shop.events", "last_seen", "30 days", "    state: armed", "    shards: {count: 3}"))
		r := w.open(&p)
		const shards = `select string_agg(concat_ws('/', slice, modulus, remainder, residual), ' ' order by slice) from lapse.shard where leaf = $1 and run = $2`
		if got := valueOn[string](t, w.exec, shards, w.oid("events_eu"), r.ID); got != "0/3/0/f 1/3/1/f 2/3/2/f 3/t" || r.Shards != 12 {
			t.Errorf("the shards of a leaf are %s, of %d", got, r.Shards)
		}
		if total := w.deleteAll(p, r, 7); total.Deleted != 300 || total.Picked != 300 {
			t.Errorf("%d rows were deleted", total.Deleted)
		}
		got := valueOn[string](t, w.exec, `select concat_ws(' ', count(*) filter (where deleted > 10 and not residual), sum(deleted) filter (where residual), sum(deleted)) from lapse.shard where run = $1`, r.ID)
		if got != "9 0 300" {
			t.Errorf("slices with rows, rows of residual shards, all rows: %s", got)
		}

		// A slice that was put aside is tried again by itself.
		w.do(`insert into events select n, 'eu', now() - interval '1 year' from generate_series(1001, 1030) n`)
		_ = w.open(&p)
		must(t, runSQL(w.admin, `update lapse.shard set done = not (slice = 1 and leaf = $1), aside = slice = 1 and leaf = $1, tries = 3, retry_at = clock_timestamp() + interval '1 hour', sqlstate = '23503'`, w.oid("events_eu")))
		r = w.open(&p)
		if got := valueOn[string](t, w.exec, `select string_agg(concat_ws('/', slice, tries), ' ') from lapse.shard where aside and run = $1`, r.ID); got != "1/3" || r.Shards != 11 {
			t.Errorf("aside are %s, to do %d", got, r.Shards)
		}

		// What a shard says that the functions do not know is refused.
		b := w.lease(p, r)
		must(t, runSQL(w.admin, `update lapse.shard set lower = '{x}' where id = $1`, b.Shard))
		_, err = w.call(b, nil)
		wantState(t, err, schemas.SQLStateLease)
		p = w.armed(policyText("shop.events", "last_seen", "30 days", "    state: armed"))
		b = w.lease(p, w.open(&p))
		must(t, runSQL(w.admin, `update lapse.shard set modulus = 2, remainder = 0 where id = $1`, b.Shard))
		_, err = w.call(b, nil)
		wantState(t, err, schemas.SQLStateLease)
	})
}
