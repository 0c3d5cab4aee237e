package planner

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/planner/functions"
)

// Rows of one value that are more than a batch may delete go in the order of the table's file, whatever happens meanwhile: somebody holds an
// old snapshot, the file is rewritten, rows move to where the batches have been, others come. Nothing else goes, and no low-water mark is
// made before the last of them is gone.
func TestATieThatIsLargerThanABatchGoesWhole(t *testing.T) {
	t.Parallel()
	const limit = 500
	many, few := 16*limit+20000+5000, 10*limit
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		must(t, w.script(soonMarked))
		old, err := w.db.Connect(t).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		must(t, err)
		var n int
		must(t, old.QueryRow(t.Context(), `select count(*) from pg_class`).Scan(&n))
		for i, c := range []struct {
			name, kind, tied string
			rows, every      int
			shape            string
		}{
			{"many, clustered", "date", "'2020-01-01'", many, 1, functions.ShapeRange},
			{"many, scattered", "timestamptz", "'2020-01-01 00:00:00.000001+00'", many, 3, functions.ShapeRange},
			{"few, clustered", "timestamp", "'2020-01-01'", few, 1, functions.ShapeRange},
			{"few, scattered", "timestamptz", "'2020-01-01'", few, 9, functions.ShapeRange},
			{"many, by their addresses", "timestamptz", "'2020-01-01'", many, 2, functions.ShapePick},
		} {
			table, name := fmt.Sprintf("tied_%d", i), fmt.Sprintf("t%d", i)
			w.do(fmt.Sprintf(`create table %s (id bigint primary key, at %s, note text)`, table, c.kind))
			w.do(fmt.Sprintf(`insert into %s select n, case when n %% %d = 0 then %s::%s else now() end, 'x' from generate_series(1, %d) n`, table, c.every, c.tied, c.kind, c.every*c.rows))
			w.do(fmt.Sprintf(`insert into %s select -n, (array[null, 'infinity', '-infinity', '2019-01-01', '2021-01-01', 'now']::%s[])[n], 'y' from generate_series(1, 6) n`, table, c.kind))
			w.do(`create index on ` + table + ` (at)`)
			_ = w.armed(fmt.Sprintf("policies:\n  - {name: %s, table: shop.%s, expire: {column: at, after: 30 days}, state: armed, batch: %d}\n", name, table, limit))
			p := w.inForce()[i]
			kept, done := value[int](w, fmt.Sprintf(`select count(*) from %s where (at between '4713-01-01 BC' and now() - interval '30 days') is not true`, table)), 0
			_, deleted := w.workOff(p, c.shape, limit, func(*batch) {
				done++
				unfinished := value[int](w, fmt.Sprintf(`select count(*) from %s where at = %s`, table, c.tied))
				if marks, _ := w.marked(&p, "shop."+table); unfinished > 0 && marks > 0 {
					t.Fatalf("%s: after batch %d a mark is made, and %d rows are left", c.name, done, unfinished)
				}
				switch done {
				case 3:
					w.do(`vacuum full ` + table)
				case 5:
					w.do(fmt.Sprintf(`update %s set note = 'moved' where id = (select max(id) from %s where at = %s)`, table, table, c.tied))
					w.do(fmt.Sprintf(`insert into %s values (-100, %s, 'late')`, table, c.tied))
				}
			})
			if left := value[int](w, `select count(*) from `+table); left != kept || deleted != int64(c.rows+3) {
				t.Errorf("%s: %d rows are left, want %d; %d were deleted, want %d", c.name, left, kept, deleted, c.rows+3)
			}
			if most := c.rows/limit + 30; done > most {
				t.Errorf("%s: %d batches, want %d at most", c.name, done, most)
			}
		}
		must(t, old.Rollback(t.Context()))
	})
}
