package planner

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"lapse/internal/pgtest"
	"lapse/planner/expiry"
	"lapse/planner/policyfile"
	"lapse/schemas"
)

// source is a table of the tests of every kind: a column of one type, and the index that its kinds ask for.
type source struct {
	table string
	of    expiry.ColumnType
	path  string
}

// value is the column as a kind names it.
func (s source) value() expiry.Value {
	return expiry.Value{Column: "v", Number: 2, Type: s.of, Path: s.path}
}

// sourcePath needs every kind of quoting.
const sourcePath = `meta."valid.to"."a""b\c"`

// inDocument is a JSON value at sourcePath, as SQL.
func inDocument(json string) string {
	return schemas.Literal(`{"meta": {"valid.to": {"a\"b\\c": ` + json + `}}}`)
}

var numberSources = []source{
	{"whole2", "smallint", ""},
	{"whole4", "integer", ""},
	{"whole8", "bigint", ""},
	{"numbers", "numeric", ""},
	{"real4", "real", ""},
	{"real8", "double precision", ""},
	{"documents", "jsonb", sourcePath},
}

// sample is one row: what is stored, in SQL, and its instant as the oracle reads it.
type sample struct {
	sql string
	at  int64
}

// kindCase is a policy by some kind, and rows.
type kindCase struct {
	d      Definition
	cutoff time.Time
	after  expiry.Interval
	rows   []sample
}

func (c *kindCase) String() string {
	return fmt.Sprintf("%s: %+v, cutoff %s, rows %+v", c.d.Table, c.d.Expire, c.cutoff.Format(time.RFC3339Nano), c.rows)
}

func drawKindCase(t *rapid.T) kindCase {
	c := kindCase{cutoff: drawInstant(t), after: drawAfter(t)}
	edge := c.cutoff.AddDate(0, 0, -int(c.after.Days)).Add(-time.Duration(c.after.Microseconds)*time.Microsecond).AddDate(0, -int(c.after.Months), 0)
	var from source
	switch rapid.SampledFrom([]string{"epoch"}).Draw(t, "kind") {
	case "epoch":
		from = rapid.SampledFrom(numberSources).Draw(t, "source")
		unit := rapid.SampledFrom([]string{"s", "ms"}).Draw(t, "unit")
		c.d.Expire = &expiry.Epoch{Kind: "epoch", Value: from.value(), Unit: unit, After: c.after}
		c.rows = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) sample { return drawNumber(t, edge, unit, from.of) }), 20, 50).Draw(t, "rows")
	}
	c.d.ID, c.d.Version, c.d.Name, c.d.Table, c.d.Batch = 1, 1, "p", "shop."+from.table, policyfile.MaxBatch
	c.d.Key = []KeyColumn{{Name: "id", Number: 1, Type: "integer", Plain: true}}
	return c
}

// drawNumber draws a number near an instant, in a column of this type, or one that arithmetic stumbles over.
func drawNumber(t *rapid.T, edge time.Time, unit string, of expiry.ColumnType) sample {
	near := rapid.OneOf(rapid.Just(0), rapid.IntRange(-2, 2), rapid.IntRange(-5*86400, 5*86400)).Draw(t, "seconds off")
	number := fmt.Sprint(edge.Unix() + int64(near))
	if unit == "ms" {
		number += fmt.Sprintf("%03d", rapid.OneOf(rapid.Just(0), rapid.Just(999), rapid.IntRange(0, 999)).Draw(t, "milliseconds"))
	}
	special := map[expiry.ColumnType][]string{
		"smallint": {"0", "-1", "32767", "-32768"}, "integer": {"0", "-1", "2147483647", "-2147483648"},
		"bigint":  {"0", "-1", "9223372036854775807", "-9223372036854775808", "-210863520000", "-210863520001", "-210863520000000", "-210863520000001"},
		"numeric": {"0", "-1", "NaN", "Infinity", "-Infinity", "1e30", "-1e30", "1e-400", "-1e-400", "1e5000", "-210863520000", "-210863520000.0000001", "-1.5", "-0.0005"},
		"real":    {"0", "-1", "NaN", "Infinity", "-Infinity", "1e30", "-1e30", "1e-40", "-1.5"}, "double precision": {"0", "-1", "NaN", "Infinity", "-Infinity", "1e300", "-1e300", "4.9e-324", "-1.5"},
		"jsonb": {"0", "-1", "1e30", "-1e30", "1e-400", "1e5000", "-1.5", "-1e-400", "210863520000", "210863520001", "-210863520000", "-210863520001"},
	}[of]
	switch rapid.IntRange(0, 5).Draw(t, "how") {
	case 0:
		number = rapid.SampledFrom(special).Draw(t, "special")
	case 1, 2:
		if of != "smallint" && of != "integer" && of != "bigint" {
			number += "." + rapid.SampledFrom([]string{"0", "5", "9999999", "999999999999999", "0000005", "000001", "123456", "1234565"}).Draw(t, "fraction")
		}
	}
	switch of {
	case "smallint", "integer":
		if n, err := strconv.ParseInt(number, 10, map[expiry.ColumnType]int{"smallint": 16, "integer": 32}[of]); err != nil {
			number = special[0]
		} else {
			number = fmt.Sprint(n)
		}
	case "jsonb":
		if rapid.IntRange(0, 3).Draw(t, "no number") == 0 {
			return sample{notANumber(t, number), never}
		}
		return sample{inDocument(number) + "::jsonb", unixTime(number, unit, of)}
	}
	return sample{schemas.Literal(number) + "::" + string(of), unixTime(number, unit, of)}
}

// notANumber is a document, in SQL, that has no number where it belongs.
func notANumber(t *rapid.T, number string) string {
	return rapid.SampledFrom([]string{
		"null", "'null'::jsonb", "'1'::jsonb", "'[]'::jsonb", "'{}'::jsonb", `'{"meta": 1}'::jsonb`, `'{"meta": {"valid.to": [` + number + `]}}'::jsonb`,
		`'{"meta.valid.to": ` + number + `}'::jsonb`, inDocument(`"`+number+`"`) + "::jsonb", inDocument("[" + number + "]"), inDocument(`{"a": ` + number + "}"),
		inDocument("true"), inDocument("null"), inDocument(`"NaN"`), inDocument(`""`),
	}).Draw(t, "document")
}

// fill stores the rows, and returns the ids of those that the oracle calls due.
func (c *kindCase) fill(ctx context.Context, conn *pgx.Conn) (due []int32, err error) {
	if _, err := conn.Exec(ctx, `truncate `+c.d.Table); err != nil {
		return nil, err
	}
	values := make([]string, 0, len(c.rows))
	for i, r := range c.rows {
		values = append(values, fmt.Sprintf("(%d, %s)", i+1, r.sql))
		if r.at != never && plus(r.at, c.after) <= c.cutoff.UnixMicro() {
			due = append(due, int32(i+1))
		}
	}
	_, err = conn.Exec(ctx, `insert into `+c.d.Table+` values `+strings.Join(values, ", "))
	return due, err
}

func makeSources(w *world) {
	w.t.Helper()
	for _, s := range numberSources {
		w.do(fmt.Sprintf(`create table %s (id int primary key, v %s)`, s.table, s.of))
		for _, unit := range []string{"s", "ms"} {
			w.do(indexFor(&expiry.Epoch{Kind: "epoch", Value: s.value(), Unit: unit}, s.table))
		}
	}
	w.do(`set timezone = 'UTC'`)
	w.do(`set enable_seqscan = off`)
}

// indexFor makes the index that a kind asks for.
func indexFor(kind expiry.Kind, table string) string {
	index := kind.Index()
	first := "(" + index.Expression + ")"
	if index.Column != "" {
		first = schemas.Identifier(index.Column)
	}
	if index.Collation != "" {
		first += " collate " + schemas.Identifier(index.Collation)
	}
	sql := "create index on " + table + " (" + first + ", id)"
	if index.Predicate != "" {
		sql += " where " + index.Predicate
	}
	return sql
}

// Whatever the kind, the pick finds what a second opinion calls due, the whole of it and nothing else, and no value makes it
// fail.
func TestEveryKindFindsWhatTheOracleCallsDue(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		makeSources(w)
		due, all := 0, 0
		rapid.Check(t, func(rt *rapid.T) {
			c := drawKindCase(rt)
			ctx := context.Background()
			want, err := c.fill(ctx, w.owner)
			if err != nil {
				rt.Fatalf("%s: %v", &c, err)
			}
			due, all = due+len(want), all+len(c.rows)
			var bound string
			if err := w.owner.QueryRow(ctx, `select (`+c.d.Expire.Bound("$1::timestamptz").Value+`)::text`, c.cutoff).Scan(&bound); err != nil {
				rt.Fatal(err)
			}
			pick := c.d.pickStatement(c.d.Table, c.cutoff.Format("2006-01-02 15:04:05.999999Z"), bound)
			got, err := ids(ctx, w.owner, `with pick as materialized (`+pick+`) select k2 from pick order by k2`)
			if err != nil {
				rt.Fatalf("%s: %v", &c, err)
			}
			if !slices.Equal(got, want) {
				rt.Fatalf("%s: the pick finds %v, want %v", &c, got, want)
			}
		})
		if due == 0 || due == all {
			t.Fatalf("%d of %d rows were due: the test has no rows on one side", due, all)
		}
		t.Logf("%d of %d rows were due", due, all)
	})
}
