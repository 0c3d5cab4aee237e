package planner

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/planner/survey"
)

// kindFile is a policy by a kind as the file says it, and a table in which rows 1 to 3 are due, at the first of 2020 by the last
// of them, and others will never be.
type kindFile struct {
	name, expire string
	of           string // the type of column v
	rows         string // values of v, in SQL, from id 1 on
	later        string // values of v, in SQL over n, of rows that are due in the next century
}

var kindFiles = []kindFile{
	{
		"alone", "{column: v}", "timestamptz", `'1999-01-01', '2019-12-31 23:59:59.999999+00', '2020-01-01 00:00+00', null, 'infinity', '-infinity'`,
		`'2100-01-01'::timestamptz + n * interval '1 minute'`,
	},
	{
		"epoch_column", "{column: v, epoch: s, after: 600 seconds}", "bigint", `0, -1, extract(epoch from '2019-12-31 23:50:00+00'::timestamptz)::bigint, null`,
		`4102444800 + n * 60`,
	},
	{
		"epoch_document", "{column: v, epoch: ms, path: meta.exp}", "jsonb",
		`'{"meta": {"exp": 0}}', '{"meta": {"exp": -1.5}}', '{"meta": {"exp": 1577836800999}}', '{"meta": {"exp": "1"}}', '{"meta": {"exp": 1e9999}}', '{"meta": null}', null, '7', '{"exp": 1}'`,
		`jsonb_build_object('meta', jsonb_build_object('exp', 4102444800000 + n * 60000))`,
	},
	{
		"text", "{column: v, iso8601: true, after: 1 day}", "text",
		`'2019-05-27', '2019-12-31T01:29:59+01:30', '2019-12-31T00:00:00.000Z', '2019-02-29', '', null, 'never', '2019-05-27T00:00:00z', '0000-01-01', '2019-05-27' || (select string_agg(md5(n::text), '') from generate_series(1, 300) n)`,
		`to_char('2100-01-01'::timestamp + n * interval '1 minute', 'YYYY-MM-DD"T"HH24:MI:SS')`,
	},
	{
		"text_document", "{column: v, iso8601: true, path: 'expires'}", "jsonb",
		`'{"expires": "2019-05-27"}', '{"expires": "2019-12-31T21:59:59-02:00"}', '{"expires": "2020-01-01T00:00:00.000Z"}', '{"expires": 0}', '{"expires": "2019-05-27 "}', '{"expires": ["2019-05-27"]}', '{}', null,
		 jsonb_build_object('expires', '2019-05-27' || (select string_agg(md5(n::text), '') from generate_series(1, 300) n))`,
		`jsonb_build_object('expires', to_char('2100-01-01'::timestamp + n * interval '1 minute', 'YYYY-MM-DD"T"HH24:MI:SS'))`,
	},
	{
		"instant", "{column: v, instant: true, path: '\"a.b\".c', after: 1 mon}", "jsonb",
		`'{"a.b": {"c": 0}}', '{"a.b": {"c": "2019-05-27T21:20:00.123+01:30"}}', '{"a.b": {"c": "2019-12-01"}}', '{"a.b": {"c": "0"}}', '{"a": {"b": {"c": 0}}}', '{"a.b": {"c": "2019-11-31"}}',
		 '{"a.b": {"c": 1e30}}', '{"a.b": {"c": true}}', jsonb_build_object('a.b', jsonb_build_object('c', '2019-05-27' || (select string_agg(md5(n::text), '') from generate_series(1, 300) n)))`,
		`case when n % 2 = 0 then jsonb_build_object('a.b', jsonb_build_object('c', 4102444800 + n * 60))
		      else jsonb_build_object('a.b', jsonb_build_object('c', to_char('2100-01-01'::timestamp + n * interval '1 minute', 'YYYY-MM-DD"T"HH24:MI:SS'))) end`,
	},
	{
		"bucket", "{bucket: {column: v, span: 1 day}, after: 1 mon, zone: Europe/Berlin}", "timestamp",
		`'1999-01-01', '2019-11-29 01:00:00', '2019-11-30 01:00:00', null, 'infinity', '-infinity'`, `'2100-01-01'::timestamp + n * interval '1 minute'`,
	},
}

// makeKinds makes the tables of kindFiles, and the file of a policy for each.
func makeKinds(w *world) (file string) {
	w.t.Helper()
	file = "policies:\n"
	for _, k := range kindFiles {
		w.do(fmt.Sprintf(`create table %s (id int primary key, v %s)`, k.name, k.of))
		w.do(fmt.Sprintf(`insert into %s select n, v::%s from unnest(array[%s]::%s[]) with ordinality r(v, n)`, k.name, k.of, k.rows, k.of))
		w.do(fmt.Sprintf(`insert into %s select n, %s from generate_series(101, 10000) n`, k.name, k.later))
		file += fmt.Sprintf("  - {name: %[1]s, table: shop.%[1]s, expire: %[2]s, state: armed, batch: 500}\n", k.name, k.expire)
	}
	return file
}

// From the file to the deleted row, for every kind: the index that is asked for is made as it is printed, is then taken for the
// one that serves, leads to the due rows alone, and refuses no row of the application's.
func TestAPolicyOfEachKindWorksFromTheFileToTheDeletion(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		file := makeKinds(w)
		for _, c := range w.apply(file) {
			statements := printed(c.Resolved.Warnings)
			if len(statements) != 1 || c.Resolved.Index != "" {
				t.Fatalf("%s: without an index: %q %q", c.Policy, c.Resolved.Index, c.Resolved.Warnings)
			}
			w.do(strings.TrimSuffix(statements[0], ";"))
		}
		must(t, runSQL(w.admin, `vacuum analyze`))
		changes, err := w.difference(strings.ReplaceAll(file, "batch: 500", "batch: 501"), false)
		must(t, err)
		for _, c := range changes {
			if warnings := c.Warnings; len(warnings) != 0 {
				t.Errorf("%s: with the index: %q", c.Policy, warnings)
			}
		}
		first := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
		for _, p := range w.inForce() {
			w.arm(p.ID)
			for at, due := range map[time.Time]int64{first: 3, first.Add(-time.Microsecond): 2, {}: 3} {
				seen, err := surveyInForce(t.Context(), w.exec, &p, at)
				must(t, err)
				if seen.Due != due || seen.Trouble != "" || seen.Method == survey.Sequential || seen.Index == "" || seen.Newest == nil || seen.Newest.After(first) {
					t.Errorf("%s: at %s the survey says %+v", p.Name, at, seen)
				}
				if at.Equal(first) {
					wantExplained(t, db, string(p.Name), seen)
				}
			}
		}
		for _, p := range w.inForce() {
			if total := w.deleteAll(p, w.open(&p), 2); total.Picked != 3 || total.Deleted != 3 {
				t.Errorf("%s: picked and deleted %+v, want 3", p.Name, total)
			}
			if gone := value[[]int32](w, `select array_agg(n order by n) from generate_series(1, 4) n where n not in (select id from `+p.TableName+`)`); !slices.Equal(gone, []int32{1, 2, 3}) {
				t.Errorf("%s: rows %v are gone", p.Name, gone)
			}
		}
	})
}

// wantExplained compares how a survey says that a batch finds its rows with what is kept. It is the same on every major.
func wantExplained(t *testing.T, db *pgtest.DB, name string, survey *survey.Survey) {
	t.Helper()
	got := survey.Statement + "\n\n" + costs.ReplaceAllString(survey.Explain, "") + "\nmethod: " + string(survey.Method) + " " + survey.Index + "\n"
	file := filepath.Join("testdata", "explain", "kind_"+name+".txt")
	if *update && db.Major == pgtest.Newest(t) {
		must(t, os.WriteFile(file, []byte(got), 0o600))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

// A text column may have any collation. Under some, two texts are equal that are not the same: PostgreSQL refuses patterns there.
func TestADateIsReadUnderAnyCollation(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db,
			`create collation loose (provider = icu, locale = 'und-u-ks-level1', deterministic = false)`,
			`create collation backwards (provider = icu, locale = 'und-u-kn-true')`,
			`create table loose (id int primary key, v text collate loose)`, `create table backwards (id int primary key, v varchar(40) collate backwards)`)
		for _, table := range []string{"loose", "backwards"} {
			w.do(`insert into ` + table + ` values (1, '2019-05-27'), (2, '２０１９-05-27'), (3, '2019-05-27t00:00:00'), (4, '2100-01-01')`)
			p := w.armed(kindText("shop."+table, "{column: v, iso8601: true}"))
			if total := w.deleteAll(p, w.open(&p), 2); total.Deleted != 1 {
				t.Errorf("%s: deleted %+v, want 1", table, total)
			}
			if left := value[[]int32](w, `select array_agg(id order by id) from `+table); !slices.Equal(left, []int32{2, 3, 4}) {
				t.Errorf("%s: rows %v are left", table, left)
			}
			w.do(`drop table ` + table)
			must(t, w.script(`update lapse.gate set state = 'dropped'`))
		}
	})
}

// kindText is a policy file of one entry.
func kindText(table, expire string) string {
	return "policies:\n  - {name: " + strings.ReplaceAll(table, ".", "-") + ", table: " + table + ", expire: " + expire + ", state: armed}\n"
}
