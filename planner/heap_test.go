package planner

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/planner/functions"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/planner/survey"
	"lapse/schemas"
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

// byFile opens a run with a leaf that is cut by its file.
func (w *world) byFile(p *record.InForce) record.Run {
	w.t.Helper()
	r, err := run.Open(w.t.Context(), w.exec, p, time.Now, run.Options{Heaps: []uint32{p.TableOID, 1}})
	must(w.t, err)
	return r
}

// Each due row is in one range of the file's pages. Those that move into a range that is done, or the file with all of them, are in the residual shard.
func TestAFileIsCutIntoRangesThatLeaveNoRowOut(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table notes (id int primary key, at timestamptz, note text default repeat('x', 700))`, `create index by_at on notes (at)`)
		p := w.armed(policyText("shop.notes", "at", "30 days", "    state: armed", "    batch: 1000"))
		for _, deed := range []string{"", "vacuum full notes", "cluster notes using by_at", "update notes set note = 'y' where id > 900", "insert into notes select -n, '2020-01-01' from generate_series(1, 300) n"} {
			w.do(`truncate notes`)
			w.do(`insert into notes select n, now() - (n * 7919 % 97) * interval '1 day' from generate_series(1, 1000) n`)
			w.do(`delete from notes where id % 5 = 0`)
			w.do(`vacuum analyze notes`)
			due := value[int64](w, `select count(*) from notes where at <= now() - interval '30 days'`)
			r := w.byFile(&p)
			batches := w.slicesOf(p, r)
			var would, did int64
			for i, b := range batches {
				b.Limit = 1000
				took := w.would(b)
				if would += took; took < due/10 || took > due/6 {
					t.Errorf("range %d would take %d of %d rows", i, took, due)
				}
				b.Shape = functions.ShapeRange
				_, err := w.call(b, nil)
				wantState(t, err, schemas.SQLStateShape)
			}
			for i, b := range batches {
				if b.Shape, b.Limit = functions.ShapeHeap, 20; i%2 == 0 {
					b.Shape = functions.ShapeHeapPick
				}
				if i == 4 {
					got, err := w.call(b, nil)
					must(t, err)
					if did += got.Picked; deed != "" {
						w.do(deed)
					}
				}
				did += w.work(b)
			}
			if len(batches) != 8 || would != due || deed == "" && did != due {
				t.Errorf("%d ranges would take %d of %d rows, and took %d", len(batches), would, due, did)
			}
			w.deleteAll(p, r, 20)
			if left := value[int](w, `select count(*)::int from notes where at <= now() - interval '30 days'`); left > 0 {
				t.Errorf("%s: %d rows are left", deed, left)
			}
		}
	})
}

func TestALeafOfWhichAPartOfItsFileWasPutAsideKeepsTheseParts(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		const shards = `select string_agg(concat_ws('/', slice, lower, upper, residual, in_heap), ' ' order by slice) from lapse.shard where run = $1`
		r := w.byFile(&p)
		if got := valueOn[string](t, w.exec, shards, r.ID); got != "0/f/t" {
			t.Errorf("the shards of an empty file are %s", got)
		}
		must(t, runSQL(w.admin, `update lapse.shard set done = true; update pg_class set relpages = 80 where relname = 'sessions'`))
		r = w.byFile(&p)
		cut := valueOn[string](t, w.exec, shards, r.ID)
		if !strings.HasPrefix(cut, `0/{NULL,"(10,0)"}/f/t 1/{NULL,"(10,0)"}/{NULL,"(20,0)"}/f/t `) || !strings.HasSuffix(cut, ` 7/{NULL,"(70,0)"}/f/t 8/t/t`) {
			t.Errorf("the shards of a file are %s", cut)
		}
		must(t, runSQL(w.admin, `update lapse.shard set done = slice <> 1, aside = slice = 1, retry_at = clock_timestamp() + interval '1 hour', sqlstate = '23503'`))
		r = w.open(&p)
		if got := valueOn[string](t, w.exec, shards, r.ID); got != cut {
			t.Errorf("the shards after one was put aside are %s", got)
		}
		must(t, runSQL(w.admin, `update lapse.shard set done = true`))
		must(t, runSQL(w.exec, fmt.Sprintf(`select lapse.open_run(%d, %d, gen_random_uuid(), '{}', '{}', array_fill(%d::oid, array[300]), null, null)`, p.ID, p.Version, p.TableOID)))
		if r := w.open(&p); r.Shards != 4 {
			t.Errorf("a leaf of 300 has %d shards", r.Shards)
		}
	})
}

// To guess how much lies below a value near the end of an index, PostgreSQL reads the index from that end, and all rows there were deleted.
func TestNoStatementOfABatchReadsTheEndOfTheIndexToBePlanned(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table sessions (id bigint primary key, last_seen timestamptz not null, note text)`,
			`create index on sessions (last_seen)`)
		w.do(`alter table sessions set (autovacuum_enabled = off)`)
		w.do(`insert into sessions select n, '2025-01-01'::timestamptz + n * interval '1 second', repeat('x', 300) from generate_series(1, 30000) n`)
		w.apply(policyText("shop.sessions", "last_seen", "30 days"))
		d := w.named("p").Definition
		w.do(`delete from sessions where id <= 10000`)
		w.do("analyze sessions")
		w.do("set enable_seqscan = off")
		parts, exact := d.RangeFacts(), "t.tableoid = 'shop.sessions'::regclass and "+d.Condition().Exact("$1", "$2")
		values := strings.NewReplacer("$10", "'2025-01-01 02:46:50+00'::timestamptz", "$11", "'2025-01-01 02:46:40+00'::timestamptz",
			"$1", "'2025-01-31 02:47+00'::timestamptz", "$2", "'2025-01-01 02:47+00'::timestamptz")
		within := fmt.Sprintf("%s and %s", parts["Narrow"], parts["After"])
		planned := func(statement string) int64 {
			var plan []struct {
				Planning struct {
					Hit  int64 `json:"Shared Hit Blocks"`
					Read int64 `json:"Shared Read Blocks"`
				}
			}
			must(t, w.owner.QueryRow(t.Context(), "explain (buffers, format json) "+values.Replace(statement)).Scan(&plan))
			return plan[0].Planning.Hit + plan[0].Planning.Read
		}
		for n := 0; planned("select from only shop.sessions as t where t.last_seen <= $2") < 20; n++ { // until PostgreSQL knows that nobody sees the deleted rows
			if n == 100 {
				t.Fatal("the end of the index is read by no statement")
			}
			w.do("select pg_current_xact_id()")
		}
		for what, statement := range map[string]string{
			"find":   d.EdgeSelect("shop.sessions", "$1", "$2") + " and " + parts["After"].(string) + " order by 1 limit 11",
			"pick":   searchOf(&d, "shop.sessions") + " and " + parts["After"].(string) + " order by 2 limit 11",
			"delete": "delete from only shop.sessions as t where " + exact + " and " + within + " and " + parts["Through"].(string),
		} {
			planned(statement) // reads the catalog
			if pages := max(planned(statement), planned(statement)); pages > 10 {
				t.Errorf("%s: its plan reads %d pages", what, pages)
			}
		}
	})
}

var (
	tableOID = regexp.MustCompile(`tableoid = '\d+'::oid`)
	// A value that the planner does not know. Majors write it in different ways.
	initPlan    = regexp.MustCompile(`(?m)^ *InitPlan .*\n *->  Result\n`)
	hiddenValue = regexp.MustCompile(`\(InitPlan (\d+)\)\.col1|\$(\d+)`)
)

// searchOf is the search of a pick as the deletion function has it, without its cursor.
func searchOf(d *functions.Definition, leaf string) string {
	return strings.Replace(d.PickSelect(leaf, "$1", "$2", "t.tableoid = '"+leaf+"'::regclass"), d.Condition().Narrow("$1", "$2"), d.RangeFacts()["Narrow"].(string), 1)
}

// numbered names a hidden value by its place in the statement.
func numbered(text string) string {
	m := hiddenValue.FindStringSubmatch(text)
	if m[1] != "" {
		return "(hidden value " + m[1] + ")"
	}
	n, _ := strconv.Atoi(m[2])
	return fmt.Sprintf("(hidden value %d)", n+1)
}

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
			{"find the last value of a range", d.EdgeSelect("shop.sessions", "$1", "$2") + " and " + after + " order by " + by + " limit $4 + 1"},
			{"find a range", searchOf(&d, "shop.sessions") + " and " + after + " order by " + by + " limit $4 + 1"},
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
				plan := hiddenValue.ReplaceAllStringFunc(initPlan.ReplaceAllString(strings.Join(lines, "\n"), ""), numbered)
				fmt.Fprintf(&got, "%s\n%s\n\n", s.name, tableOID.ReplaceAllString(plan, "tableoid = sessions"))
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
