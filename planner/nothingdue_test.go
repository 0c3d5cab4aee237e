package planner

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/planner/functions"
	"lapse/planner/survey"
	"lapse/schemas"
)

// buffersOf is how many pages a statement reads, by PostgreSQL's own count, when all that it needs of the catalog is known.
func buffersOf(t *testing.T, conn *pgx.Conn, sql string) (pages int64) {
	t.Helper()
	for n := range 5 { // the first fill the session's caches, and others' changes may empty them at any time: the least is the statement's own
		var plan []struct {
			Plan struct {
				Hit  int64 `json:"Shared Hit Blocks"`
				Read int64 `json:"Shared Read Blocks"`
			}
		}
		text := valueOn[string](t, conn, `explain (analyze, buffers, format json) `+sql)
		must(t, json.Unmarshal([]byte(text), &plan))
		if read := plan[0].Plan.Hit + plan[0].Plan.Read; n == 0 || read < pages {
			pages = read
		}
	}
	return pages
}

// With the index, what a plan of a policy with nothing due reads does not grow with the table, but by the index's depth.
func TestAPlanWithNothingDueCostsTheSameOnATableOfAnySize(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		file := "policies:\n"
		sizes := []int{1000, largeTable}
		for _, rows := range sizes {
			w.do(fmt.Sprintf(`create table t%d (id bigint primary key, at timestamptz, note text)`, rows))
			w.do(fmt.Sprintf(`insert into t%d select n, now() - interval '29 days' + n * interval '1 millisecond', 'x' from generate_series(1, %[1]d) n`, rows))
			w.do(fmt.Sprintf(`create index on t%d (at, id)`, rows))
			must(t, runSQL(w.admin, fmt.Sprintf(`vacuum analyze shop.t%d`, rows)))
			file += fmt.Sprintf("  - {name: p%d, table: shop.t%[1]d, expire: {column: at, after: 30 days}}\n", rows)
		}
		w.apply(file)
		var surveys, picks []int64
		for _, rows := range sizes {
			p := w.named(schemas.PolicyName(fmt.Sprintf("p%d", rows)))
			s, err := survey.Ask{}.InForce(t.Context(), w.exec, &p)
			must(t, err)
			if s.Due != 0 || s.Trouble != "" {
				t.Errorf("%d rows: %d are due (%s)", rows, s.Due, s.Trouble)
			}
			surveys = append(surveys, buffersOf(t, w.exec, `select * from `+functions.SurveyFunction(p.ID, p.Version)+`(now(), 1000000, 0)`))
			picks = append(picks, buffersOf(t, w.owner, s.Statement))
		}
		t.Logf("pages read on %d rows: by the survey %d, by the pick %d", sizes, surveys, picks)
		const deeper = 8 // an index is read once for the plan's estimate of each end and once for the rows, a page for each level
		if surveys[1] > surveys[0]+deeper || picks[1] > picks[0]+deeper {
			t.Errorf("pages read on %d rows: by the survey %d, by the pick %d", sizes, surveys, picks)
		}
	})
}

// largeTable is large enough that reading a hundredth of it would be seen.
const largeTable = 300_000
