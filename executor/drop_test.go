package executor

import (
	"fmt"
	"testing"

	"lapse/internal/pgtest"
)

// months makes a table of ranges of its due column: so many that are over and due, one that is half due, and a default one.
func months(t testing.TB, db *pgtest.DB, over, rows int) {
	t.Helper()
	statements := []string{"create table parts (id bigint, at timestamptz, primary key (id, at)) partition by range (at)"}
	const makePart = `do $$ begin execute format('create table parts_%[1]s partition of parts for values from (%%L) to (%%L)', now() - interval '%[2]d days', now() - interval '%[3]d days'); end $$`
	for i := range over {
		statements = append(statements, fmt.Sprintf(makePart, fmt.Sprint(i+1), 100+10*i+10, 100+10*i))
	}
	statements = append(statements, fmt.Sprintf(makePart, "half", 100, -10), "create table parts_rest partition of parts default",
		fmt.Sprintf("insert into parts select n, now() - interval '101 days' - n %% %d * interval '10 days' from generate_series(1, %d) n", over, over*rows),
		fmt.Sprintf("insert into parts select n, now() - case when n %% 2 = 0 then interval '50 days' else interval '10 days' end from generate_series(1, %d) n", rows),
		fmt.Sprintf("insert into parts select n, now() - interval '900 days' from generate_series(1, %d) n", rows), "analyze parts")
	owned(t, db, statements...)
}

func TestAPartitionIsDroppedWholeAndTheOthersLoseTheirDueRows(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		months(t, db, 3, 40)
		arm(t, db, policies(policy("p", "public.parts", "action: drop_partition")))
		e := newExecutor(t, db)
		did := only(t, once(t, e))
		if did.Outcome != Finished || did.Deleted != 3*40+20+40 {
			t.Errorf("got %+v, want the 120 rows of three partitions, 20 and 40", did)
		}
		if left := one[string](t, db, `select string_agg(c.relname, ' ' order by c.relname) from pg_class c join pg_inherits i on i.inhrelid = c.oid where i.inhparent = 'parts'::regclass`); left != "parts_half parts_rest" {
			t.Errorf("left are %s", left)
		}
		if n := one[int](t, db, `select count(*) from parts`); n != 20 {
			t.Errorf("%d rows are left, want the 20 that are not due", n)
		}
		if ledger := one[string](t, db, `select string_agg(relation || ' ' || rows, ', ' order by relation) from lapse.dropped`); ledger != "public.parts_1 40, public.parts_2 40, public.parts_3 40" {
			t.Errorf("the ledger of drops has %s", ledger)
		}
		if n := one[int](t, db, `select sum(deleted) from lapse.batch_result`); n != 60 {
			t.Errorf("the ledger of batches has %d rows, want 60", n)
		}
		if fault := one[*string](t, db, `select lapse.publications_fault()`); fault != nil {
			t.Errorf("the publications are faulty: %s", *fault)
		}
		if did := only(t, once(t, e, "p")); did.Deleted != 0 || did.Outcome != Finished {
			t.Errorf("the next run: %+v", did)
		}
	})
}
