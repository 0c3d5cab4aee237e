package expiry

import (
	"slices"
	"strings"
	"testing"

	"lapse/internal/pgtest"
)

func TestAPathIsCutAtItsDots(t *testing.T) {
	t.Parallel()
	for path, want := range map[string][]string{
		"a":                 {"a"},
		"a.b.c":             {"a", "b", "c"},
		`meta."valid.to".x`: {"meta", "valid.to", "x"},
		`"a""b"."".0`:       {`a"b`, "", "0"},
		`"über uns".$id`:    {"über uns", "$id"},
		"":                  nil,
		"a.":                nil,
		".a":                nil,
		"a..b":              nil,
		"a b":               nil,
		`"a`:                nil,
		`"a"b`:              nil,
		`a"b"`:              nil,
		"$.a b":             nil,
	} {
		got, err := readPath(path)
		if want == nil && err == nil || !slices.Equal(got, want) && want != nil {
			t.Errorf("%s: got %q (%v), want %q", path, got, err, want)
		}
	}
}

// The keys that PostgreSQL takes from the array are those of the path, and it writes the array as it is in an index.
func TestAPathReachesPostgresAsItIsWritten(t *testing.T) {
	t.Parallel()
	conn := pgtest.New(t, pgtest.Newest(t)).Connect(t)
	for _, path := range []string{"a.b", `meta."valid.to"`, `"a""b".""`, `"NULL".null`, `"{}".","."a b"`, `"a\b"`, `"it's".$x.ü`, `"0".1`} {
		keys, err := readPath(path)
		must(t, err)
		if got := valueOn[[]string](t, conn, "select "+pathSQL(path)); !slices.Equal(got, keys) {
			t.Errorf("%s: PostgreSQL reads %q, want %q", path, got, keys)
		}
		if got := valueOn[string](t, conn, "select quote_literal(("+pathSQL(path)+")::text) || '::text[]'"); got != strings.TrimSpace(pathSQL(path)) {
			t.Errorf("%s: written as %s, PostgreSQL writes %s", path, pathSQL(path), got)
		}
	}
}

// An entry whose column is not there, or is none that the kind reads, is refused at its key, with the fix.
func TestAColumnThatAKindCannotReadIsRefusedWithTheFix(t *testing.T) {
	t.Parallel()
	conn := pgtest.New(t, pgtest.Newest(t)).Connect(t)
	must(t, run(conn, `create domain stamp as bigint`))
	must(t, run(conn, `create table x (id int primary key, at timestamptz, exp bigint, doc jsonb, raw json, note text, code char(40), dom stamp)`))
	table := Table{OID: valueOn[uint32](t, conn, `select 'x'::regclass::oid`), Name: "public.x"}
	for _, c := range []struct {
		entry     Entry
		key, want string
	}{
		{Entry{"column": "exp", "epoch": "s"}, "", ""},
		{Entry{"column": "doc", "epoch": "ms", "path": "a.b"}, "", ""},
		{Entry{"column": "epx", "epoch": "s"}, "column", "did you mean exp?"},
		{Entry{"column": "at", "epoch": "s"}, "column", "is of type timestamp with time zone: epoch reads numbers"},
		{Entry{"column": "dom", "epoch": "s"}, "column", "is of type stamp: epoch reads numbers"},
		{Entry{"column": "doc", "epoch": "s"}, "column", "say with path where in it the value is"},
		{Entry{"column": "raw", "epoch": "s", "path": "a"}, "column", "alter table public.x alter column \"raw\" type jsonb using \"raw\"::jsonb"},
		{Entry{"column": "exp", "epoch": "s", "path": "a"}, "path", "take path out"},
		{Entry{"column": "exp", "after": "1 day"}, "column", "write epoch: s or ms"},
		{Entry{"column": "note", "iso8601": "true"}, "", ""},
		{Entry{"column": "doc", "iso8601": "true", "path": "a"}, "", ""},
		{Entry{"column": "code", "iso8601": "true"}, "column", "is of type character: iso8601 reads text, character varying, or a jsonb"},
		{Entry{"column": "note", "iso8601": "true", "path": "a"}, "path", "take path out"},
		{Entry{"column": "doc", "instant": "true", "path": "a"}, "", ""},
		{Entry{"column": "doc", "instant": "true", "epoch": "ms", "path": "a"}, "", ""},
		{Entry{"column": "doc", "instant": "true"}, "column", "say with path"},
		{Entry{"column": "note", "instant": "true"}, "column", "for one of texts iso8601: true"},
		{Entry{"column": "exp", "instant": "true"}, "column", "write epoch: s or ms"},
		{Entry{"bucket.column": "at", "bucket.span": "1 day"}, "", ""},
		{Entry{"bucket.column": "att"}, "bucket.column", "did you mean at?"},
		{Entry{"bucket.column": "at", "zone": "Europe/Berlin"}, "zone", "has a zone of its own"},
		{Entry{"column": "at"}, "", ""},
		{Entry{"column": "at", "after": "600"}, "", ""},
	} {
		kind, problems, err := Read(t.Context(), conn, c.entry)
		must(t, err)
		if found := Check(c.entry); len(found)+len(problems) > 0 {
			t.Errorf("%v: %v %v", c.entry, found, problems)
		}
		problems, err = kind.Resolve(t.Context(), conn, table)
		must(t, err)
		switch {
		case c.want == "" && len(problems) > 0, c.want != "" && len(problems) != 1:
			t.Errorf("%v: got %v, want %q", c.entry, problems, c.want)
		case c.want != "" && (problems[0].Key != c.key || !strings.Contains(problems[0].Text, c.want)):
			t.Errorf("%v: got %v, want %q at %s", c.entry, problems[0], c.want, c.key)
		}
	}
}

func TestAnEntryWhoseKeysDoNotGoTogetherIsRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		entry     Entry
		key, want string
	}{
		{Entry{"epoch": "s"}, "", "expire needs column"},
		{Entry{"column": "a", "epoch": "us"}, "epoch", `epoch is s (seconds since 1970) or ms, and not "us"`},
		{Entry{"column": "a", "epoch": "s", "zone": "UTC"}, "zone", "zone and epoch exclude each other"},
		{Entry{"column": "a", "epoch": "s", "ttl_column": "b"}, "epoch", "epoch and ttl_column exclude each other"},
		{Entry{"column": "a", "epoch": "s", "path": "a."}, "path", "is not a path"},
		{Entry{"column": "a", "iso8601": "false"}, "iso8601", "iso8601 is true, or is left out"},
		{Entry{"column": "a", "iso8601": "true", "epoch": "s"}, "iso8601", "iso8601 and epoch exclude each other"},
		{Entry{"iso8601": "true"}, "", "expire needs column"},
		{Entry{"column": "a", "instant": "yes"}, "instant", "instant is true, or is left out"},
		{Entry{"column": "a", "instant": "true", "epoch": "us"}, "epoch", `epoch is s (seconds since 1970) or ms, and not "us"`},
		{Entry{"column": "a", "instant": "true", "iso8601": "true"}, "iso8601", "iso8601 and instant exclude each other"},
		{Entry{"bucket.span": "1 day"}, "", "expire needs bucket.column"},
		{Entry{"bucket.column": "a", "column": "b"}, "column", "column and bucket.column exclude each other"},
		{Entry{"bucket.column": "a", "zone": "CET"}, "zone", "is not the name of a place"},
	} {
		problems := Check(c.entry)
		if len(problems) != 1 || problems[0].Key != c.key || !strings.Contains(problems[0].Text, c.want) {
			t.Errorf("%v: got %v, want %q at %q", c.entry, problems, c.want, c.key)
		}
	}
}

// A whole number is one of seconds wherever an entry has a duration, and without one there is none.
func TestAWholeNumberInAnEntryIsSeconds(t *testing.T) {
	t.Parallel()
	conn := pgtest.New(t, pgtest.Newest(t)).Connect(t)
	ten := Interval{Microseconds: 600_000_000}
	for _, c := range []struct {
		entry Entry
		want  Interval
	}{
		{Entry{"column": "a", "after": "600"}, ten},
		{Entry{"column": "a", "after": "0"}, Interval{}},
		{Entry{"column": "a"}, Interval{}},
		{Entry{"column": "a", "epoch": "s", "after": "600"}, ten},
		{Entry{"column": "a", "epoch": "s"}, Interval{}},
		{Entry{"column": "a", "ttl_column": "b", "ttl_default": "600"}, ten},
		{Entry{"column": "a", "iso8601": "true", "after": "600"}, ten},
		{Entry{"column": "a", "path": "b", "instant": "true", "after": "600"}, ten},
		{Entry{"bucket.column": "a", "after": "600"}, ten},
	} {
		kind, problems, err := Read(t.Context(), conn, c.entry)
		must(t, err)
		var got Interval
		switch k := kind.(type) {
		case *Age:
			got = k.After
		case *Epoch:
			got = k.After
		case *TTL:
			got = *k.Default
		case *ISO8601:
			got = k.After
		case *NumberOrText:
			got = k.After
		case *Bucket:
			got = k.After
		}
		if len(problems) > 0 || got != c.want {
			t.Errorf("%v: got %s, %v, want %s", c.entry, got, problems, c.want)
		}
	}
	for _, text := range []string{"-600", "1.5", "99999999999999999999", "٣"} {
		if _, problems, err := Read(t.Context(), conn, Entry{"column": "a", "after": text}); err != nil || len(problems) != 1 || problems[0].Key != "after" {
			t.Errorf("%s: got %v, %v, want one problem at after", text, problems, err)
		}
	}
}

func TestABucketIsAnHourUnlessTheEntrySaysOtherwise(t *testing.T) {
	t.Parallel()
	conn := pgtest.New(t, pgtest.Newest(t)).Connect(t)
	for text, want := range map[string]Interval{"": {Microseconds: 3_600_000_000}, "60": {Microseconds: 60_000_000}, "1 mon": {Months: 1}} {
		e := Entry{"bucket.column": "a", "bucket.span": text}
		if text == "" {
			delete(e, "bucket.span")
		}
		kind, problems, err := Read(t.Context(), conn, e)
		must(t, err)
		if b, _ := kind.(*Bucket); b == nil || len(problems) > 0 || b.Span != want || !b.After.IsZero() {
			t.Errorf("%q: got %+v, %v", text, kind, problems)
		}
	}
	if _, problems, err := Read(t.Context(), conn, Entry{"bucket.column": "a", "bucket.span": "soon"}); err != nil || len(problems) != 1 || problems[0].Key != "bucket.span" {
		t.Errorf("got %v, %v, want a problem at bucket.span", problems, err)
	}
}

// Every day of the calendar's 400 years: what an index has of a text lies no further above the true day than the bound allows,
// an offset's day left for itself, and the allowance is needed, all but two days.
func TestTheIndexBoundOfAnInstantLosesNoDay(t *testing.T) {
	t.Parallel()
	conn := pgtest.New(t, pgtest.Newest(t)).Connect(t)
	k := NumberOrText{Value: Value{Column: "doc", Type: jsonType, Path: "a"}}
	beyond := valueOn[int](t, conn, `
		select max((`+k.order("t.")+`) / 86400 - (d.day::date - '1970-01-01'))
		  from generate_series('2000-01-01'::timestamp, '2400-01-01', '1 day') d(day),
		       lateral (select jsonb_build_object('a', to_char(d.day, 'YYYY-MM-DD')) as doc) t`)
	if beyond > 4 || beyond < 2 {
		t.Errorf("a day is counted as %d days after itself, want 2 to 4", beyond)
	}
	t.Logf("%d days of the slack are used", beyond)
}

// What an index has is written as PostgreSQL writes it, or a DBA's index would not be known again; and it is immutable.
func TestAnIndexExpressionIsWrittenAsPostgresWritesIt(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		conn := db.Connect(t)
		must(t, run(conn, `create table x (id int primary key, doc jsonb, "Note" text, code varchar(40))`))
		document := Value{Column: "doc", Type: jsonType, Path: `meta."valid to"`}
		for _, kind := range []Kind{
			&Epoch{Value: document, Unit: seconds}, &Epoch{Value: document, Unit: milliseconds}, &ISO8601{Value: document}, &NumberOrText{Value: document},
			&NumberOrText{Value: document, Unit: milliseconds},
			&ISO8601{Value: Value{Column: "Note", Type: "text"}}, &ISO8601{Value: Value{Column: "code", Type: "character varying"}},
		} {
			index := kind.Index()
			first, want := "("+index.Expression+")", "("+index.Expression+")"
			if index.Column != "" {
				first, want = `"`+index.Column+`"`, "("+index.Predicate+")"
			}
			must(t, run(conn, `create index made on x (`+first+`) where `+index.Predicate))
			written := valueOn[string](t, conn, `select regexp_replace(case when indkey[0] = 0 then pg_get_indexdef(indexrelid, 1, false) else pg_get_expr(indpred, indrelid) end, '\s+', ' ', 'g')
				from pg_index where indexrelid = 'made'::regclass`)
			if strings.ReplaceAll(written, "( CASE", "(CASE") != strings.NewReplacer(`"doc"`, "doc", `"code"`, "code").Replace(want) {
				t.Errorf("PostgreSQL writes\n%s, we write\n%s", written, want)
			}
			must(t, run(conn, `drop index made`))
		}
	})
}
