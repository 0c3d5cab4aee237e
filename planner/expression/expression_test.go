package expression

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// site is a database with a table of the application's, and an extension's schema of a superuser's.
type site struct {
	db    *pgtest.DB
	admin *pgx.Conn // a superuser, pinned as sessions of ours are
	owner *pgx.Conn
	app   string
}

const table = `
	create type mood as enum ('sad', 'ok');
	create domain email as text check (value ~ '@');
	create domain short as varchar(7) not null;
	create domain shorter as short;
	create type pair as (a int, b text);
	create table r (
	  id bigint primary key, gone int, status text, kind varchar(10), tags text[], n numeric(6,2), seen timestamptz, local timestamp, day date,
	  j jsonb, ok boolean, span int4range, feels mood, moods mood[], mail email, brief shorter default 'x', p pair, mails email[], ci ext.citext,
	  sorted text collate "C", "Mixed ""Case" text, "order" int, ttl interval, "select" boolean);
	alter table r drop column gone`

func newSite(t testing.TB, db *pgtest.DB) *site {
	t.Helper()
	s := &site{db: db, app: db.NewRole(t, "app")}
	s.admin = s.connect(t, "postgres")
	s.superuser(t, `create schema ext; create extension citext schema ext; grant usage on schema ext to public;
		create function ext.slug(v text) returns text language sql immutable as 'select lower(v)';
		create function ext.table_size(v text) returns bigint language sql stable as 'select 1::bigint';
		create function ext.roll(v text) returns bigint language sql volatile as 'select 1::bigint';
		create schema shop authorization `+s.app)
	s.owner = s.connect(t, s.app)
	s.plant(t, "set search_path = shop;"+table)
	return s
}

// connect opens a session with the settings that all of ours have.
func (s *site) connect(t testing.TB, role string) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(s.db.As(role))
	must(t, err)
	schemas.PinSession(config.RuntimeParams, schemas.SessionSettings())
	conn, err := pgx.ConnectConfig(t.Context(), config)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}

func (s *site) superuser(t testing.TB, sql string) {
	t.Helper()
	_, err := s.admin.PgConn().Exec(t.Context(), sql).ReadAll()
	must(t, err)
}

func (s *site) plant(t testing.TB, sql string) {
	t.Helper()
	_, err := s.owner.PgConn().Exec(t.Context(), sql).ReadAll()
	must(t, err)
}

func (s *site) oid(t testing.TB, name string) (oid uint32) {
	t.Helper()
	must(t, s.admin.QueryRow(t.Context(), `select $1::text::regclass::oid`, name).Scan(&oid))
	return oid
}

func (s *site) read(t testing.TB, name, text string, want Wanted) (*Expression, string) {
	t.Helper()
	e, problem, err := Read(t.Context(), s.admin, s.oid(t, name), text, want)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if (e == nil) == (problem == "") {
		t.Fatalf("%s: neither an expression nor a problem, or both", text)
	}
	return e, problem
}

// accepted are conditions, with what PostgreSQL makes of them and the columns that they read; a * says that no index holds them.
var accepted = []struct{ text, sql, columns string }{
	{`status = 'closed'`, `(t."status" = 'closed'::text)`, `status`},
	{"status\n = 'closed'\n", `(t."status" = 'closed'::text)`, `status`},
	{`status = 'it''s' and not ok`, `((t."status" = 'it''s'::text) AND (NOT t."ok"))`, `status ok`},
	{`status = E'a\\b' or "Mixed ""Case" is null`, `((t."status" = 'a\b'::text) OR (t."Mixed ""Case" IS NULL))`, `status Mixed "Case`},
	{`ok`, `t."ok"`, `ok`},
	{`"select" and "order" > 1`, `(t."select" AND (t."order" > 1))`, `order select`},
	{`kind in ('a', 'b c')`, `((t."kind")::text = ANY ((ARRAY['a'::character varying, 'b c'::character varying])::text[]))`, `kind`},
	{`case status when 'a' then true else ok end`, `CASE t."status" WHEN 'a'::text THEN true ELSE t."ok" END`, `status ok`},
	{`tags @> '{a}' and tags[1] = 'x' and cardinality(tags[1:2]) > 1`, `((t."tags" @> '{a}'::text[]) AND (t."tags"[1] = 'x'::text) AND (cardinality(t."tags"[1:2]) > 1))`, `tags`},
	{`coalesce(n, 0) > 1.5 and greatest(id, 3) <> least(id, 4)`, `((COALESCE(t."n", (0)::numeric) > 1.5) AND (GREATEST(t."id", (3)::bigint) <> LEAST(t."id", (4)::bigint)))`, `id n`},
	{`(id, n) < (1, 2)`, `(ROW(t."id", t."n") < ROW(1, (2)::numeric))`, `id n`},
	{`nullif(kind, 'x') is distinct from status`, `(NULLIF((t."kind")::text, 'x'::text) IS DISTINCT FROM t."status")`, `status kind`},
	{`j ->> 'state' = 'gone' and j['a'] is null`, `(((t."j" ->> 'state'::text) = 'gone'::text) AND (t."j"['a'::text] IS NULL))`, `j`},
	{`span @> 3`, `(t."span" @> 3)`, `span`},
	{`feels = 'sad' or 'ok' = any (moods)`, `((t."feels" = 'sad'::shop.mood) OR ('ok'::shop.mood = ANY (t."moods")))`, `feels moods`},
	{`mail = 'a@b' and brief <> 'x'`, `((t."mail" = 'a@b'::text) AND ((t."brief")::text <> 'x'::text))`, `mail brief`},
	{`ci operator(ext.=) 'A' and lower(ci::text) = 'a'`, `((t."ci" OPERATOR(ext.=) 'A'::ext.citext) AND (lower((t."ci")::text) = 'a'::text))`, `ci`},
	{`ext.slug(status) = 'a' and pg_catalog.lower(status) = 'a'`, `((ext.slug(t."status") = 'a'::text) AND (lower(t."status") = 'a'::text))`, `status`},
	{`seen < timestamptz '2020-01-01' and day > date '2019-01-01'`, `((t."seen" < '2020-01-01 00:00:00+00'::timestamp with time zone) AND (t."day" > '2019-01-01'::date))`, `seen day`},
	{`seen + interval '1 mon' > local at time zone 'Europe/Berlin'`, `((t."seen" + '1 mon'::interval) > (t."local" AT TIME ZONE 'Europe/Berlin'::text))`, `seen local*`},
	{`extract(year from seen) = 2020`, `(EXTRACT(year FROM t."seen") = (2020)::numeric)`, `seen*`},
	{`make_interval(days => 3) < ttl and sorted < 'x' and status collate "C" > 'y'`, `((make_interval(days => 3) < t."ttl") AND (t."sorted" < 'x'::text) AND ((t."status" COLLATE "C") > 'y'::text))`, `status sorted ttl`},
	{`status like 'a%' and status ~ '^a' and position('a' in status) > 0 and trim(both from status) = ''`, `((t."status" ~~ 'a%'::text) AND (t."status" ~ '^a'::text) AND (POSITION(('a'::text) IN (t."status")) > 0) AND (TRIM(BOTH FROM t."status") = ''::text))`, `status`},
	{`status = 'today'`, `(t."status" = 'today'::text)`, `status`},
	{`status::bigint between 1 and 3 and id::text = '1'`, `((((t."status")::bigint >= 1) AND ((t."status")::bigint <= 3)) AND ((t."id")::text = '1'::text))`, `id status`},
	{`(j ->> 'at')::timestamptz < '2020-01-01'`, `(((t."j" ->> 'at'::text))::timestamp with time zone < '2020-01-01 00:00:00+00'::timestamp with time zone)`, `j*`},
	{`id || 'x' = '1x'`, `((t."id" || 'x'::text) = '1x'::text)`, `id*`},
	{`ok is not true and (ok is unknown or seen is null)`, `((t."ok" IS NOT TRUE) AND ((t."ok" IS UNKNOWN) OR (t."seen" IS NULL)))`, `seen ok`},
	{`status = ') , check ('`, `(t."status" = ') , check ('::text)`, `status`},
	{`true`, `true`, ``},
}

// turnedDown are texts that are refused, with a part of the reason.
var turnedDown = []struct{ text, want string }{
	{``, "it is empty"},
	{`true) , check (true`, "closes nothing"},
	{`true) not valid, add constraint d check (true`, "closes nothing"},
	{`(true`, "is not closed"},
	{`tags[1)`, "closes nothing"},
	{`true; drop table shop.r`, "semicolon"},
	{`true -- and more`, "comment"},
	{`id > 5--3`, "comment"},
	{`true /* x */`, "comment"},
	{`status = $$x$$`, "single quotes"},
	{`status = 'x`, "not closed"},
	{`U&"stat\0075s" = 'x'`, "Unicode escapes"},
	{`status = U&'\0061'`, "Unicode escapes"},
	{"status = 'a'\n'b'", "two texts in a row"},
	{`status = '$lapse$'`, "$lapse$"},
	{"status = E'a\\nb'", "line break"},
	{`status = chr(10) {`, "nothing that an expression can hold"},
	{`statsu = 'x'`, `there is no column "statsu"; did you mean status?`},
	{`zzz = 'x'`, `there is no column "zzz"; there are id, status`},
	{`r.status = 'x'`, "columns are written without their table's name"},
	{`shop.r.status = 'x'`, "too many parts"},
	{`gone = 1`, `there is no column "gone"`},
	{`id`, "must be type boolean, not type bigint"},
	{`status =`, "syntax error"},
	{`status = 'x' limit 1`, "syntax error"},
	{`$1 = 2`, "single quotes"},
	{`id = 'x'`, "invalid input syntax"},
	{`feels = 'glad'`, "invalid input value for enum"},
	{`nosuch(id)`, "looked for in pg_catalog alone"},
	{`id in (select 1)`, "subquery"},
	{`id in (select x.id from shop.r x)`, "subquery"},
	{`id = ( Select shop.f(x.id) from shop.r as x)`, "subquery"},
	{`exists (table r)`, "subquery"},
	{`count(*) > 1`, "aggregate"},
	{`row_number() over () > 1`, "window"},
	{`generate_series(1, 2) > 1`, "set-returning"},
	{`r is not null`, `there is no column "r"`},
	{`tableoid = 3`, "system column"},
	{`ctid is null`, "system column"},
	{`xmin = '1'`, "system column"},
	{`seen < now()`, "function now() depends on when"},
	{`seen < current_timestamp`, "only clock"},
	{`day < current_date`, "only clock"},
	{`status = current_user`, "by whom"},
	{`status = session_user`, "by whom"},
	{`seen < clock_timestamp()`, "volatile"},
	{`seen < statement_timestamp()`, "depends on when"},
	{`age(seen) > '1 year'`, "depends on when"},
	{`seen < 'now'`, "moment of apply"},
	{`day < 'today'`, "moment of apply"},
	{`local < timestamp 'tomorrow'`, "moment of apply"},
	{`random() < 0.5`, "volatile"},
	{`nextval('shop.s') = 1`, `names a table`},
	{`nextval('pg_catalog.pg_class') = 1`, "value"},
	{`current_setting('x') = 'y'`, "depends on when"},
	{`set_config('role', 'postgres', false) = 'y'`, "volatile"},
	{`pg_sleep(1) is null`, "pseudo-type"},
	{`query_to_xml('select 1', true, true, '') is null`, "volatile"},
	{`pg_read_file('x') = 'y'`, "volatile"},
	{`lo_get(1) is null`, "volatile"},
	{`ts_rewrite('a', 'select 1') is null`, "volatile"},
	{`jsonb_populate_record(null::shop.pair, j) is null`, "neither PostgreSQL's"},
	{`to_jsonb(status) is null`, "depends on when"},
	{`to_char(seen, 'TMMonth') = 'May'`, "depends on when"},
	{`has_table_privilege('shop.r', 'select')`, "depends on when"},
	{`pg_try_advisory_lock(1)`, "volatile"},
	{`status::regclass is not null`, "mean something to the server"},
	{`status::money > '1'`, "depends on the session"},
	{`status::timetz is null`, "depends on the session"},
	{`xmlelement(name a) is null`, "it builds or reads XML"},
	{`row(id, n) is null`, "builds a row"},
	{`p is null`, "column p is of type shop.pair, a composite type"},
	{`(p).a = 1`, "composite type"},
	{`mails = '{a}'`, "an array of a domain"},
	{`array[mail] = '{a}'`, "does not mean the same over domains"},
	{`status::shop.email = 'x'`, "neither PostgreSQL's"},
	{`ci = 'A'`, "cast it to the type that is meant"},
	{`ext.table_size(status) = 1`, "only immutable ones"},
	{`ext.roll(status) = 1`, "volatile"},
	{`ext.nosuch(status)`, "there is no function, operator or type"},
	{`nowhere.f(status)`, "there is no function, operator or type"},
	{strings.Repeat("(", 20) + `ok` + strings.Repeat(")", 20) + strings.Repeat(" ", longest), "longer than"},
}

func TestAConditionIsReadAsPostgresUnderstandsItOrRefusedWithTheReason(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		s := newSite(t, db)
		for _, c := range accepted {
			e, problem := s.read(t, "shop.r", c.text, Boolean)
			if problem != "" {
				t.Errorf("%s: refused: %s", c.text, problem)
				continue
			}
			var columns []string
			for _, column := range e.Columns {
				columns = append(columns, column.Name)
			}
			read, stable := strings.CutSuffix(c.columns, "*")
			if e.SQL != c.sql || strings.Join(columns, " ") != read || e.Immutable == stable {
				t.Errorf("%s: got\n%s of %q, immutable %v, want\n%s of %q", c.text, e.SQL, columns, e.Immutable, c.sql, c.columns)
			}
			if len(e.Warnings) > 0 {
				t.Errorf("%s: warnings %q", c.text, e.Warnings)
			}
		}
		for _, c := range turnedDown {
			e, problem := s.read(t, "shop.r", c.text, Boolean)
			if !strings.Contains(problem, c.want) {
				t.Errorf("%.80s: got %v %q, want %q", c.text, e, problem, c.want)
			}
		}
	})
}

func TestAnInstantMustBeOne(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		s := newSite(t, db)
		for text, want := range map[string]string{
			`seen + ttl`: `(t."seen" + t."ttl")`,
			`seen`:       `t."seen"`,
			`case when ok then seen else local at time zone 'UTC' end`: `CASE WHEN t."ok" THEN t."seen" ELSE (t."local" AT TIME ZONE 'UTC'::text) END`,
			`coalesce(seen, 'infinity')`:                               `COALESCE(t."seen", 'infinity'::timestamp with time zone)`,
		} {
			if e, problem := s.read(t, "shop.r", text, Instant); problem != "" || e.SQL != want {
				t.Errorf("%s: got %+v %q, want %s", text, e, problem, want)
			}
		}
		for text, want := range map[string]string{
			`day`:                     "it is of type date, and must be a timestamp with time zone",
			`local`:                   "(…) at time zone 'UTC'",
			`null`:                    "must be a timestamp with time zone",
			`seen is null or ok`:      "it is of type boolean",
			`seen) is null and (seen`: "closes nothing",
			`now()`:                   "depends on when",
		} {
			if _, problem := s.read(t, "shop.r", text, Instant); !strings.Contains(problem, want) {
				t.Errorf("%s: got %q, want %q", text, problem, want)
			}
		}
	})
}

// What PostgreSQL writes for an index of the same condition is what Bare says, so that one can be found by the other.
func TestTheBareTextIsTheOneOfAnIndex(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		s := newSite(t, db)
		for i, text := range []string{`status = 'closed'`, `"Mixed ""Case" is null and "order" > 1`, `kind in ('a', 'b')`, `feels = 'sad'`} {
			e, problem := s.read(t, "shop.r", text, Boolean)
			if problem != "" {
				t.Fatal(problem)
			}
			s.plant(t, `create index i`+string(rune('a'+i))+` on shop.r (id) where `+text)
			var of string
			must(t, s.admin.QueryRow(t.Context(), `select pg_get_expr(indpred, indrelid) from pg_index where indexrelid = ('shop.i' || $1)::regclass`,
				string(rune('a'+i))).Scan(&of))
			if of != e.Bare {
				t.Errorf("%s: the index says %s, Bare is %s", text, of, e.Bare)
			}
		}
	})
}

func TestConjunctsAreWhatIsTrueOfEveryRow(t *testing.T) {
	t.Parallel()
	for sql, want := range map[string][]string{
		`t."ok"`:                    {`t."ok"`},
		`(t."a" = 'x AND y'::text)`: {`(t."a" = 'x AND y'::text)`},
		`((t."a" = 1) AND t."b" AND (NOT t."c"))`:       {`(t."a" = 1)`, `t."b"`, `(NOT t."c")`},
		`((t."a" AND t."b") OR t."c")`:                  {`((t."a" AND t."b") OR t."c")`},
		`((t."a" AND t."b") IS TRUE)`:                   {`((t."a" AND t."b") IS TRUE)`},
		`(((t."a" >= 1) AND (t."a" <= 2)) AND t."b")`:   {`(t."a" >= 1)`, `(t."a" <= 2)`, `t."b"`},
		`(t."a")::boolean`:                              {`(t."a")::boolean`},
		`CASE WHEN (t."a" AND t."b") THEN 1 ELSE 2 END`: {`CASE WHEN (t."a" AND t."b") THEN 1 ELSE 2 END`},
	} {
		if got := Conjuncts(sql); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", sql, got, want)
		}
	}
}
