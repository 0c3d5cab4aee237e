package planner

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/planner/functions"
	"lapse/planner/survey"
)

// From PostgreSQL's statistics to the shape, for the executor and for a person.
func TestAScatteredBacklogIsSurveyedAsAHeap(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions, `create index on sessions (last_seen, id)`)
		w.do(`insert into sessions select n, now() - interval '20 days' - (n * 7919 % 30011) * interval '1 minute' from generate_series(1, 30010) n`)
		w.do(`analyze sessions`)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed", "    batch: 500"))
		ask := func(shape string, heaps int) {
			t.Helper()
			b, err := survey.ReadBacklog(t.Context(), w.exec, &p, time.Now().AddDate(0, 0, 20), &survey.Judgement{})
			must(t, err)
			s, err := survey.Ask{At: time.Now().AddDate(0, 0, 20)}.InForce(t.Context(), w.exec, &p)
			must(t, err)
			if len(b.Heaps) != heaps || len(b.Cuts) > 0 != (heaps == 0) || s.Shape != shape || strings.Contains(s.Statement, "t.ctid >") != (heaps == 1) {
				t.Errorf("want %s: the backlog is %+v, the survey %s:\n%s", shape, b, s.Shape, s.Statement)
			}
			if n := value[int](w, "select count(*) from ("+s.Statement+") s"); n != 500 {
				t.Errorf("the statement that is shown finds %d rows", n)
			}
		}
		ask(functions.ShapeHeap, 1)
		w.do(`create index by_age on sessions (last_seen)`)
		w.do(`cluster sessions using by_age`)
		w.do(`drop index by_age`)
		w.do(`analyze sessions`)
		ask(functions.ShapeRange, 0)
	})
}

var tableOID = regexp.MustCompile(`tableoid = '\d+'::oid`)

// Each statement of a batch reads its part of the index, or of the table's file, and no more: where the statistics are old, too.
// The plans are the same on every major.
func TestTheStatementsOfEachShapeReadTheirPartOfTheTable(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table sessions (tenant int, id bigint, last_seen timestamptz not null, note text, primary key (tenant, id))`,
			`create index sessions_by_age on sessions (last_seen, tenant, id)`)
		w.do(`alter table sessions set (autovacuum_enabled = off)`)
		w.do(`insert into sessions select n % 9, n, '2025-01-01'::timestamptz + n / 5000 * interval '1 day', repeat('x', 50) from generate_series(1, 30000) n`)
		w.apply(policyText("shop.sessions", "last_seen", "30 days"))
		d := w.named("p").Definition
		for _, setting := range []string{"timezone = 'UTC'", "datestyle = 'ISO'", "enable_seqscan = off", "enable_bitmapscan = off", "constraint_exclusion = off", "jit = off"} {
			w.do("set " + setting)
		}
		parts, own, exact := d.RangeFacts(), "t.tableoid = $3", d.Condition().Exact("$1", "$2")
		deletion := "delete from only shop.sessions as t where " + own + " and " + exact
		narrow := fmt.Sprintf(" and %s and ", parts["Narrow"])
		values := strings.NewReplacer("$10", "timestamptz '2025-01-04'", "$11", "timestamptz '2025-01-02'",
			"$1", "timestamptz '2026-01-01'", "$2", "timestamptz '2025-12-02'", "$3", "'shop.sessions'::regclass", "$4", "500",
			"$5", "'(3,4)'::text::tid", "$6", "'(90,0)'::text::tid", "$7", "array['(0,1)', '(7,2)']::tid[]")
		inTie, after, by := parts["InTie"].(string), parts["After"].(string), parts["By"].(string)
		heap := d.HeapSelect("shop.sessions", "$1", "$2", own)
		all := []struct{ name, sql string }{
			{"find the last value of a range", d.EdgeSelect("shop.sessions") + " and " + after + " order by " + by + " limit $4 + 1"},
			{"find a range", d.PickSelect("shop.sessions", "$1", "$2", own) + " and " + after + " order by " + by + " limit $4 + 1"},
			{"delete a range", deletion + narrow + parts["Through"].(string) + " and " + after},
			{"find in a tie of few", heap + narrow + inTie + " and t.ctid > $5 order by t.ctid limit $4"},
			{"find in a tie of many", heap + " and (" + inTie + ") is true and t.ctid > $5 and t.ctid < $6 limit $4"},
			{"delete in a tie of many", deletion + " and (" + inTie + ") is true and t.ctid > $5 and t.ctid <= $6"},
			{"lock a pick", "select t.ctid as at from only shop.sessions as t where t.ctid = any ($7) and " + own + " and " + exact + " " + d.Condition().Lock()},
			{"delete a pick", deletion + " and t.ctid = any ($7)"},
			{"count a heap", heap + " and t.ctid > $5 and t.ctid < $6 limit $4"},
			{"delete a heap", deletion + " and t.ctid > $5 and t.ctid <= $6"},
		}
		for _, analyzed := range []bool{false, true} {
			if analyzed {
				w.do("analyze sessions")
			}
			var got strings.Builder
			for _, s := range all {
				rows, err := w.owner.Query(t.Context(), "explain (costs off) "+values.Replace(s.sql))
				must(t, err)
				lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
				must(t, err)
				fmt.Fprintf(&got, "%s\n%s\n\n", s.name, tableOID.ReplaceAllString(strings.Join(lines, "\n"), "tableoid = sessions"))
			}
			file := filepath.Join("testdata", "explain", "shapes.txt")
			if *update && analyzed && db.Major == pgtest.Newest(t) {
				must(t, os.WriteFile(file, []byte(got.String()), 0o600))
			}
			want, err := os.ReadFile(file)
			must(t, err)
			if got.String() != string(want) {
				t.Errorf("analyzed: %t: got\n%s\nwant\n%s", analyzed, got.String(), want)
			}
		}
	})
}
