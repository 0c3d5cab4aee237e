package executor

import (
	"testing"

	"lapse/internal/pgtest"
)

// A run of a soft policy counts the rows that it set as deleted; the next one has nothing to do, whatever is set already.
func TestASoftPolicySetsWhatIsDueAndLooksNoMoreAtIt(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		owned(t, db, "create table docs (id bigint primary key, at timestamptz, gone timestamptz, note text)",
			"create table pages (doc bigint references docs on delete cascade)",
			"insert into docs select g, now() - g * interval '1 hour' from generate_series(1, 2000) g", "insert into pages select id from docs", "analyze docs")
		arm(t, db, policies(policy("docs", "public.docs", "action: {soft: {column: gone}}", "batch: 100", "pace: unlimited")))
		e := newExecutor(t, db)
		first := only(t, once(t, e))
		if first.Deleted != 1281 || first.Cascaded != 0 {
			t.Errorf("the run did %+v, want 1281 rows set", first)
		}
		const is = `select concat_ws(' ', (select count(*) from docs), (select count(*) from docs where gone is not null and at + interval '30 days' <= gone),
			(select count(*) from docs where gone is not null), (select count(*) from pages),
			(select count(*) from lapse.batch where soft), (select sum(deleted) from lapse.batch_result))`
		before := one[string](t, db, is)
		if want := "2000 1281 1281 2000 "; before[:len(want)] != want {
			t.Errorf("rows, those set in time, set, pages, batches and counts are %s", before)
		}
		if s := once(t, e); len(s.Policies) > 0 && s.Policies[0].Deleted != 0 {
			t.Errorf("a second run did %+v", s)
		}
		if after := one[string](t, db, is); after != before {
			t.Errorf("a second run made %s of %s", after, before)
		}
	})
}
