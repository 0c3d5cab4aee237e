package planner

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"lapse/internal/pgtest"
	"lapse/planner/expiry"
	"lapse/planner/functions"
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

var textSources = []source{{"texts", "text", ""}, {"chars", "character varying", ""}, {"documents", "jsonb", sourcePath}}

// sample is one row: what is stored, in SQL, and its instant as the oracle reads it.
type sample struct {
	sql string
	at  int64 // never: it is none
}

// kindCase is a policy by some kind, and rows.
type kindCase struct {
	d      functions.Definition
	cutoff time.Time
	span   expiry.Interval // of a bucket
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
	rows := func(draw func(t *rapid.T) sample) {
		c.rows = rapid.SliceOfN(rapid.Custom(draw), 20, 50).Draw(t, "rows")
	}
	switch rapid.SampledFrom([]string{"epoch", "iso8601", "iso8601", "instant", "bucket"}).Draw(t, "kind") {
	case "epoch":
		from = rapid.SampledFrom(numberSources).Draw(t, "source")
		unit := rapid.SampledFrom([]string{"s", "ms"}).Draw(t, "unit")
		c.d.Expire = &expiry.Epoch{Kind: "epoch", Value: from.value(), Unit: unit, After: c.after}
		rows(func(t *rapid.T) sample { return drawNumber(t, edge, unit, from.of) })
	case "iso8601":
		from = rapid.SampledFrom(textSources).Draw(t, "source")
		c.d.Expire = &expiry.ISO8601{Kind: "iso8601", Value: from.value(), After: c.after}
		rows(func(t *rapid.T) sample { return drawText(t, edge, from.of) })
	case "instant":
		from = source{"documents", "jsonb", sourcePath}
		unit := rapid.SampledFrom([]string{"s", "ms"}).Draw(t, "unit")
		c.d.Expire = &expiry.NumberOrText{Kind: "instant", Value: from.value(), Unit: strings.TrimPrefix(unit, "s"), After: c.after}
		rows(func(t *rapid.T) sample {
			if rapid.Bool().Draw(t, "number") {
				return drawNumber(t, edge, unit, from.of)
			}
			return drawText(t, edge, from.of)
		})
	case "bucket":
		from = source{"with_zone", expiry.Timestamptz, ""}
		c.span = drawAfter(t)
		c.span.Months %= 1200
		edge = edge.AddDate(0, -int(c.span.Months), -int(c.span.Days)).Add(-time.Duration(c.span.Microseconds) * time.Microsecond)
		c.d.Expire = &expiry.Bucket{Kind: "bucket", Moment: expiry.Moment{Column: "v", Number: 2, Type: from.of}, Span: c.span, After: c.after}
		rows(func(t *rapid.T) sample { return drawMoment(t, edge) })
	}
	c.d.ID, c.d.Version, c.d.Name, c.d.Table, c.d.Batch = 1, 1, "p", "shop."+from.table, policyfile.MaxBatch
	c.d.Key = []functions.KeyColumn{{Name: "id", Number: 1, Type: "integer", Plain: true}}
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

// drawMoment draws a timestamp.
func drawMoment(t *rapid.T, edge time.Time) sample {
	if rapid.IntRange(0, 5).Draw(t, "special") == 0 {
		return sample{rapid.SampledFrom([]string{"null", "'infinity'", "'-infinity'", "'294276-12-31'", "'4713-12-31 23:59 BC'::timestamptz - interval '1 year'"}).Draw(t, "moment"), never}
	}
	at := edge.AddDate(0, 0, rapid.OneOf(rapid.Just(0), rapid.IntRange(-5, 5)).Draw(t, "days off")).
		Add(time.Duration(rapid.Int64Range(-1, 1).Draw(t, "off")) * time.Microsecond)
	if at.Unix() < firstSecond {
		return sample{"null", never}
	}
	return sample{schemas.Literal(postgresText(at)) + "::timestamptz", at.UnixMicro()}
}

// drawText draws a date as text near an instant, in each of the forms, or a text that is nearly one.
func drawText(t *rapid.T, edge time.Time, of expiry.ColumnType) sample {
	text := isoText(t, edge)
	if rapid.IntRange(0, 2).Draw(t, "spoilt") == 0 {
		text = spoil(t, text)
	}
	at := isoTime(text)
	if of != "jsonb" {
		return sample{schemas.Literal(text) + "::" + string(of), at}
	}
	if rapid.IntRange(0, 7).Draw(t, "no text") == 0 {
		return sample{notANumber(t, "[]"), never}
	}
	json, _ := json.Marshal(text)
	return sample{inDocument(string(json)) + "::jsonb", at}
}

func isoText(t *rapid.T, edge time.Time) string {
	at := edge.UTC().AddDate(0, 0, rapid.OneOf(rapid.Just(0), rapid.IntRange(-3, 3)).Draw(t, "days off")).
		Add(time.Duration(rapid.OneOf(rapid.IntRange(-2, 2), rapid.IntRange(-2e6, 2e6), rapid.IntRange(-2e9, 2e9)).Draw(t, "nanoseconds off")))
	if at.Year() < 1 || at.Year() > 9999 {
		at = time.Date(rapid.SampledFrom([]int{1, 4, 100, 400, 1900, 2000, 2024, 9999}).Draw(t, "year"), time.Month(rapid.IntRange(1, 12).Draw(t, "month")), 1, 0, 0, 0, 0, time.UTC)
	}
	offset := rapid.OneOf(rapid.SampledFrom([]int{0, 90, -120, 23*60 + 59, -23*60 - 59, 840, -720}), rapid.IntRange(-1439, 1439)).Draw(t, "offset")
	written, sign := max(offset, -offset), "+"
	if offset < 0 {
		sign = "-"
	}
	layout := "2006-01-02" + rapid.SampledFrom([]string{"T", " "}).Draw(t, "between") + "15:04" +
		rapid.SampledFrom([]string{"", ":05", ":05.0", ":05.00", ":05.000", ":05.000000", ":05.0000000", ":05.000000000", ":05.999999999"}).Draw(t, "seconds")
	switch zone := rapid.SampledFrom([]string{"day", "", "Z", "%02d", "%02d%02d", "%02d:%02d"}).Draw(t, "zone"); zone {
	case "day":
		return at.Format("2006-01-02")
	case "", "Z":
		return at.Format(layout) + zone
	case "%02d":
		return at.Add(time.Duration(offset/60)*time.Hour).Format(layout) + sign + fmt.Sprintf(zone, written/60)
	default:
		return at.Add(time.Duration(offset)*time.Minute).Format(layout) + sign + fmt.Sprintf(zone, written/60, written%60)
	}
}

// nearMisses are texts that are nearly dates. Some of them are what PostgreSQL itself would take for one.
var nearMisses = []string{
	"", " ", "0", "-", "-1", "now", "today", "tomorrow", "yesterday", "epoch", "infinity", "-infinity", "allballs", "1550165973", "20190527", "2019-147", "2019-W22-1",
	"2019-5-27", "2019-05-7", "19-05-27", "12019-05-27", "-2019-05-27", "+2019-05-27", "2019/05/27", "2019.05.27", "27-05-2019", "May 27 2019", "2019-05-27 ", " 2019-05-27",
	"2019-05-27\n", "2019-05-27 BC", "2019-05-27Z", "2019-05-27+01:30", "2019-05-27T", "2019-05-27T21", "2019-05-27T21:20", "2019-05-27T21:20Z", "2019-05-27 21:20:00",
	"2019-05-27t21:20:00Z", "2019-05-27T21:20:00z", "2019-05-27T24:00:00", "2019-05-27T23:60:00", "2019-05-27T23:59:60", "2019-05-27T21:20:00 Z", "2019-05-27T21:20:00Z ",
	"2019-05-27T21:20:00.Z", "2019-05-27T21:20:00.1Z", "2019-05-27T21:20:00.12Z", "2019-05-27T21:20:00.1234Z", "2019-05-27T21:20:00,123Z", "2019-05-27T21:20:00+1:30",
	"2019-05-27T21:20:00+0130", "2019-05-27T21:20:00+01", "2019-05-27T21:20:00+25:00", "2019-05-27T21:20:00+24:00", "2019-05-27T21:20:00-01:60", "2019-05-27T21:20:00Z+01:30",
	"2019-05-27T21:20:00+01:30Z", "2019-05-27T21:20:00.123+01:300", "2019-05-27T21:20:00 +01:30", "2019-05-27T21:20:00UTC", "2019-05-27T21:20:00.123456+01:30", "2019-05-27T21:20:00.1234567890Z", "2019-05-27T21:20:00.+01:30", "2019-05-27  21:20:00", "2019-05-27_21:20:00", "2019-05-27T21:20.5Z", "2019-05-27T21:20:00+013", "2019-05-27T21:20:00+01:3", "2019-05-27T21:20:00+01:", "2019-05-27T21:20:00+01:30:00", "2019-05-27T21:20:00.999999999Z", "2019-05-27 21:20:00.999999001-23", "2019-05-27 21:20:00 +0000 UTC", "2019-05-27T21:20:00+01:30[Europe/Berlin]", "2019-00-27", "2019-13-27",
	"2019-05-00", "2019-05-32", "2026-02-30", "2019-02-29", "1900-02-29", "2100-02-29", "2019-04-31", "0000-01-01", "0000-00-00", "0000-02-29", "0001-01-01", "2000-02-29", "2024-02-29",
	"9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "٢٠١٩-٠٥-٢٧", "２０１９-０５-２７", "2019‐05‐27", "2019-05-27T21:20:00\u00a0", "2019-05-27T21:20:00−02:00", "2019-05-27'", `2019-05-27"`,
	"2019-05-27" + strings.Repeat("0", 3000), "2019-05-27T21:20:00.123+01:30" + strings.Repeat(" ", 100),
}

// spoil makes a text of another that is nearly a date, or happens to be one.
func spoil(t *rapid.T, text string) string {
	at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
	with := rapid.SampledFrom(strings.Split("0 1 2 3 4 5 6 7 8 9 - : . + T Z t z ' ٣ \t", " ")).Draw(t, "with")
	switch rapid.IntRange(0, 4).Draw(t, "how") {
	case 0:
		return text[:at] + with + text[at+1:]
	case 1:
		return text[:at] + with + text[at:]
	case 2:
		return text[:at] + text[at+1:]
	case 3:
		return text + rapid.SampledFrom([]string{" ", "\n", "Z", "0", ".", "+00:00", "\u00a0"}).Draw(t, "behind")
	default:
		return rapid.SampledFrom(nearMisses).Draw(t, "near miss")
	}
}

// fill stores the rows, and returns the ids of those that the oracle calls due.
func (c *kindCase) fill(ctx context.Context, conn *pgx.Conn) (due []int32, err error) {
	if _, err := conn.Exec(ctx, `truncate `+c.d.Table); err != nil {
		return nil, err
	}
	values := make([]string, 0, len(c.rows))
	for i, r := range c.rows {
		values = append(values, fmt.Sprintf("(%d, %s)", i+1, r.sql))
		if r.at != never && plus(plus(r.at, c.span), c.after) <= c.cutoff.UnixMicro() {
			due = append(due, int32(i+1))
		}
	}
	_, err = conn.Exec(ctx, `insert into `+c.d.Table+` values `+strings.Join(values, ", "))
	return due, err
}

// unread says what is wrong with what the kind calls unread: every value that is there and is no instant, and no pattern with what is in it.
func (c *kindCase) unread(ctx context.Context, conn *pgx.Conn) (wrong string, err error) {
	unread := expiry.UnreadOf(c.d.Expire)
	if unread.Condition == "" {
		return "", nil
	}
	there := "t.v is not null"
	if strings.HasSuffix(c.d.Table, "documents") {
		there = "jsonb_typeof(t.v #> array['meta', 'valid.to', 'a\"b\\c']) <> 'null'"
	}
	rows, err := conn.Query(ctx, `select t.id, coalesce(`+there+`, false), `+unread.Condition+`, coalesce(`+unread.Pattern+`, '') from `+c.d.Table+` t order by t.id`)
	if err != nil {
		return "", err
	}
	var (
		id        int
		is, finds bool
		pattern   string
	)
	_, err = pgx.ForEachRow(rows, []any{&id, &is, &finds, &pattern}, func() error {
		switch want := is && c.rows[id-1].at == never; {
		case finds != want:
			wrong = fmt.Sprintf("row %d is called unread: %t, want %t", id, finds, want)
		case finds && (pattern == "" || utf8.RuneCountInString(pattern) > 45 || regexp.MustCompile(`[0-8b-zA-Z]|[^ -~]`).MatchString(strings.NewReplacer("array", "", "object", "", "boolean", "", "number", "").Replace(pattern))):
			wrong = fmt.Sprintf("row %d has the pattern %q", id, pattern)
		}
		return nil
	})
	return wrong, err
}

func makeSources(w *world) {
	w.t.Helper()
	for _, s := range numberSources {
		w.do(fmt.Sprintf(`create table %s (id int primary key, v %s)`, s.table, s.of))
		for _, unit := range []string{"s", "ms"} {
			w.do(indexFor(&expiry.Epoch{Kind: "epoch", Value: s.value(), Unit: unit}, s.table))
		}
	}
	for _, s := range textSources {
		if s.of != "jsonb" {
			w.do(fmt.Sprintf(`create table %s (id int primary key, v %s)`, s.table, s.of))
		}
		w.do(indexFor(&expiry.ISO8601{Kind: "iso8601", Value: s.value()}, s.table))
		if s.of == "jsonb" {
			w.do(indexFor(&expiry.NumberOrText{Kind: "instant", Value: s.value()}, s.table))
			w.do(indexFor(&expiry.NumberOrText{Kind: "instant", Value: s.value(), Unit: "ms"}, s.table))
		}
	}
	w.do(`create table with_zone (id int primary key, v timestamptz)`)
	w.do(`create index on with_zone (v, id)`)
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
	pgtest.Every(t, func(t *testing.T, db *pgtest.DB) {
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
			pick := c.d.Statement(functions.ShapePick, c.d.Table, c.cutoff.Format("2006-01-02 15:04:05.999999Z"), bound)
			got, err := ids(ctx, w.owner, picked(c.d.Table, pick))
			if err != nil {
				rt.Fatalf("%s: %v", &c, err)
			}
			if !slices.Equal(got, want) {
				rt.Fatalf("%s: the pick finds %v, want %v", &c, got, want)
			}
			condition, limit := c.d.Condition(), "$2::text::"+c.d.Expire.Bound("").Type
			counted, err := ids(ctx, w.owner, `select id from `+condition.From(c.d.Table)+` where $1::timestamptz is not null and `+condition.Narrow("$1", limit)+` and `+condition.Exact("$1", limit)+` order by id`,
				c.cutoff, bound)
			if err != nil || !slices.Equal(counted, want) {
				rt.Fatalf("%s: the survey counts %v (%v), want %v", &c, counted, err, want)
			}
			if unread, err := c.unread(ctx, w.owner); err != nil {
				rt.Fatalf("%s: %v", &c, err)
			} else if unread != "" {
				rt.Fatalf("%s: %s", &c, unread)
			}
		})
		if due == 0 || due == all {
			t.Fatalf("%d of %d rows were due: the test has no rows on one side", due, all)
		}
		t.Logf("%d of %d rows were due", due, all)
	})
}
