package expression

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

// planted is what the table's owner makes, so that code of theirs may run while a superuser reads an expression. f says who runs
// it, and tries to become more than its owner.
const planted = `
	create function f(v text) returns boolean language plpgsql immutable as $$
	begin
	  raise warning 'planted code ran as %', current_user;
	  begin
	    execute 'alter role ' || quote_ident(current_user) || ' superuser';
	    raise warning 'planted code made itself a superuser';
	  exception when others then null;
	  end;
	  begin
	    execute 'reset role; set role postgres';
	    raise warning 'planted code became postgres';
	  exception when others then null;
	  end;
	  return true;
	end $$;
	create function f_or(v text, w text) returns boolean language sql immutable as 'select shop.f(v)';
	create domain evil as text check (f(value));
	create domain evils as evil[];
	create type holds as (e evil);
	create type spread as range (subtype = text);
	create operator public.= (leftarg = mood, rightarg = mood, function = f_mood);
	create operator shop.### (leftarg = text, rightarg = text, function = f_or);
	create cast (mood as boolean) with function f_bool(mood) as implicit;
	create cast (mood as text) with function f_text(mood) as implicit;
	create collation odd (locale = 'C');
	create function lower(text) returns text language sql immutable as 'select f($1)::text';
	create function to_date(text) returns date language sql immutable as 'select f($1)::text::date';
	create table attacked (
	  id bigint primary key check (f(id::text)), status text default f('x')::text, e evil, es evil[], nested evils, h holds, hs holds[], s spread,
	  feels mood, over ext.over, g text generated always as (f_stored(status)) stored, "pg_temp" text, "f" text);`

const plantedBefore = `
	create function f_stored(v text) returns text language plpgsql immutable as $$ begin raise warning 'planted code ran as %', current_user; return v; end $$;
	create function f_mood(v mood, w mood) returns boolean language plpgsql immutable as $$ begin raise warning 'planted code ran as %', current_user; return true; end $$;
	create function f_bool(v mood) returns boolean language plpgsql immutable as $$ begin raise warning 'planted code ran as %', current_user; return true; end $$;
	create function f_text(v mood) returns text language plpgsql immutable as $$ begin raise warning 'planted code ran as %', current_user; return 'x'; end $$;`

// attempts are texts that may make planted code run, with a part of the refusal; "" for what is read without harm.
var attempts = []struct{ text, want string }{
	{`es = '{a}'`, "an array of a domain"},
	{`array[e] = '{a}'`, "does not mean the same over domains"},
	{`array[e] is not null`, "it uses shop.evil"},
	{`e = 'a'`, ""},
	{`e in ('a', 'b') and coalesce(e, 'c') <> nullif(e, 'd')`, ""},
	{`nested = '{a}'`, "an array of a domain"},
	{`h = '(a)'`, "a composite type"},
	{`hs = '{(a)}'`, "a composite type"},
	{`s = '[a,b]'`, "neither PostgreSQL's nor a superuser's"},
	{`over = '[a,b]'`, "a range over a type that cannot be read"},
	{`feels`, "neither PostgreSQL's nor a superuser's"},
	{`feels like 'a%'`, "neither PostgreSQL's nor a superuser's"},
	{`feels = 'ok'`, "neither PostgreSQL's nor a superuser's"}, // the implicit cast to text fits better than enums' own operator
	{`feels operator(public.=) 'ok'`, "neither PostgreSQL's nor a superuser's"},
	{`status operator(shop.###) 'x'`, "neither PostgreSQL's nor a superuser's"},
	{`status operator ( "shop" . ### ) 'x'`, "neither PostgreSQL's nor a superuser's"},
	{`status ### 'x'`, "looked for in pg_catalog alone"},
	{`shop.f('{a}')`, "neither PostgreSQL's nor a superuser's"},
	{`shop . "f" ('{a}')`, "neither PostgreSQL's nor a superuser's"},
	{`"SHOP".f('a')`, "there is no function"},
	{`SHOP.F('a')`, "neither PostgreSQL's nor a superuser's"},
	{`f('a')`, "looked for in pg_catalog alone"},
	{`lower(status) = 'a'`, ""},
	{`to_date(status) is null`, "looked for in pg_catalog alone"},
	{`'{a}'::shop.evil[] is null`, "neither PostgreSQL's nor a superuser's"},
	{`'{a}'::shop._evil is null`, "neither PostgreSQL's nor a superuser's"},
	{`shop.evil '{a}' is null`, "neither PostgreSQL's nor a superuser's"},
	{`cast('{a}' as shop.evils) is null`, "neither PostgreSQL's nor a superuser's"},
	{`'(a)'::shop.attacked is null`, "neither PostgreSQL's nor a superuser's"},
	{`status::shop.evil = 'a'`, "neither PostgreSQL's nor a superuser's"},
	{`ext.takes('{a}')`, "ext.takes(shop.evil[]) reads shop.evil[], an array of a domain"},
	{`ext.both('x')`, "neither PostgreSQL's nor a superuser's"},
	{`status collate shop.odd = 'x'`, "neither PostgreSQL's nor a superuser's"},
	{`pg_temp.f('a')`, "there is no function"},
	{`pg_catalog.f('a')`, "looked for in pg_catalog alone"},
	{`g = 'x' and "pg_temp" = 'x' and "f" = 'x'`, ""},
	{`jsonb_populate_record(null::shop.holds, '{"e": "a"}') is null`, "neither PostgreSQL's nor a superuser's"},
	{`query_to_xml('select shop.f(''a'')', true, true, '') is null`, "volatile"},
	{`1 = 2.shop.f('a')`, "is no number"},
	{"true or shop\n.\nf('a')", "neither PostgreSQL's nor a superuser's"},
	{`status = 'a' or e'\'' = ' or shop.f(''{a}'') or '`, ""},
	{`U&"sh\006fp".f('a')`, "Unicode escapes"},
	{`true or/**/shop.f('a')`, "comment"},
}

// listener hears what planted code says in a session.
type listener struct {
	mu    sync.Mutex
	heard []string
}

func (l *listener) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	heard := l.heard
	l.heard = nil
	return heard
}

func (s *site) listen(t testing.TB) (*pgx.Conn, *listener) {
	t.Helper()
	config, err := pgx.ParseConfig(s.db.URL)
	must(t, err)
	schemas.PinSession(config.RuntimeParams, schemas.SessionSettings())
	l := &listener{}
	config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if strings.HasPrefix(n.Message, "planted code") {
			l.heard = append(l.heard, n.Message)
		}
	}
	conn, err := pgx.ConnectConfig(t.Context(), config)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn, l
}

func (s *site) besiege(t testing.TB) {
	t.Helper()
	s.superuser(t, `grant create on schema public to `+s.app)
	before, after, _ := strings.Cut(planted, "create table attacked")
	s.plant(t, plantedBefore+before)
	s.superuser(t, `create type ext.over as range (subtype = shop.evil);
		create function ext.takes(v shop.evil[]) returns boolean language sql immutable as 'select true';
		create function ext.both(v int) returns boolean language sql immutable as 'select true';
		grant usage, create on schema ext to `+s.app)
	s.plant(t, `create table attacked`+after+`create function ext.both(v text) returns boolean language sql immutable as 'select shop.f(v)'`)
}

// Whatever the table's owner plants, nothing of it runs while a superuser reads a text, however the text calls for it.
func TestNoCodeOfATablesOwnerRunsWhileAnExpressionIsRead(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		s := newSite(t, db)
		s.besiege(t)
		conn, listener := s.listen(t)
		oid := s.oid(t, "shop.attacked")
		for _, a := range attempts {
			_, problem, err := Read(t.Context(), conn, oid, a.text, Boolean)
			must(t, err)
			if (problem == "") != (a.want == "") || !strings.Contains(problem, a.want) {
				t.Errorf("%s: got %q, want %q", a.text, problem, a.want)
			}
			if heard := listener.take(); len(heard) > 0 {
				t.Errorf("%s: %q", a.text, heard)
			}
		}
	})
}

// The last wall: were a type to slip through all else, its code runs with the rights of the table's owner, and cannot get more.
func TestWhatEscapesTheRestRunsAsTheTablesOwner(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		s := newSite(t, db)
		s.besiege(t)
		conn, listener := s.listen(t)
		tx, err := conn.Begin(t.Context())
		must(t, err)
		r := &reader{tx: tx, want: Boolean, owner: s.app}
		column := []tempColumn{{"es", "shop.evil[]", ""}}
		if _, err := r.parse(t.Context(), column, []uint32{s.oid(t, "shop.attacked")}, `es = '{a}'`); !errors.Is(err, errMoved) {
			t.Errorf("a column that turns out to be of another type: %v", err)
		}
		if heard := listener.take(); len(heard) > 0 {
			t.Errorf("for a column of another type %q", heard)
		}
		var of uint32
		must(t, tx.QueryRow(t.Context(), `select 'shop.evil[]'::regtype::oid`).Scan(&of))
		_, err = r.parse(t.Context(), column, []uint32{of}, `es = '{a}'`)
		must(t, err)
		if heard := listener.take(); len(heard) != 1 || heard[0] != "planted code ran as "+s.app {
			t.Errorf("heard %q, want that it ran once, as %s", heard, s.app)
		}
		r.lone, r.database = true, db.Name
		_, err = r.parse(t.Context(), column, []uint32{of}, `es = '{a}'`)
		must(t, err)
		if heard := listener.take(); len(heard) != 1 || !strings.HasPrefix(heard[0], "planted code ran as lapse_") {
			t.Errorf("on a superuser's table heard %q, want that it ran once, as nobody", heard)
		}
		must(t, tx.Commit(t.Context()))
		var left int
		must(t, conn.QueryRow(t.Context(), `
			select (select count(*) from pg_proc where pronamespace = pg_my_temp_schema()) + (select count(*) from pg_class where relnamespace = pg_my_temp_schema())
			     + (select count(*) from pg_roles where rolname = $1 and rolsuper or rolname like 'lapse\_%')`, s.app).Scan(&left))
		if left != 0 {
			t.Errorf("%d things are left", left)
		}
	})
}

// hijack is what code that slips through may leave in the session, for the login's own next statement to run: a search_path with
// operators that fit better than PostgreSQL's, and other statements under the names of those that are prepared.
const hijack = `
	create function gain() returns boolean language plpgsql as $$ begin raise warning 'planted code ran as %', current_user; return true; end $$;
	create function gain(v oid, w regclass) returns boolean language sql as 'select shop.gain()';
	create function gain(v oid, w oid) returns boolean language sql as 'select shop.gain()';
	create operator shop.= (leftarg = oid, rightarg = regclass, function = gain);
	create operator shop.= (leftarg = oid, rightarg = oid, function = gain);
	create function hijack(v text) returns boolean language plpgsql as $$
	declare
	  p text;
	begin
	  perform set_config('search_path', 'shop, pg_catalog', false);
	  for p in select name from pg_prepared_statements loop
	    execute format('deallocate %I', p);
	    execute format('prepare %I as select shop.gain(), $1::text, $2::text', p);
	  end loop;
	  return true;
	end $$;
	create domain hijacking as text check (hijack(value));`

// Nothing runs what code that slips through leaves in the session.
func TestWhatEscapesTheRestLeavesNothingThatWeRun(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		s := newSite(t, db)
		s.plant(t, hijack)
		conn, listener := s.listen(t)
		tx, err := conn.Begin(t.Context())
		must(t, err)
		var of, text uint32
		must(t, tx.QueryRow(t.Context(), `select 'shop.hijacking[]'::regtype::oid, 'text'::regtype::oid`).Scan(&of, &text))
		r := &reader{tx: nameless{tx}, want: Boolean, owner: s.app}
		_, err = r.parse(t.Context(), []tempColumn{{"v", "text", ""}}, []uint32{text}, `v = 'a'`)
		must(t, err)
		p, err := r.parse(t.Context(), []tempColumn{{"v", "shop.hijacking[]", ""}}, []uint32{of}, `v = '{a}'`)
		if err != nil || len(p.columns) != 1 {
			t.Errorf("%+v %v", p, err)
		}
		if heard := listener.take(); len(heard) > 0 {
			t.Errorf("heard %q, %d times", heard[0], len(heard))
		}
		must(t, tx.Rollback(t.Context()))
	})
}

// A statement under a name of ours, prepared by whatever ran meanwhile, does not outlive the reading.
func TestNoPreparedStatementOutlivesTheReading(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		s := newSite(t, db)
		oid := s.oid(t, "shop.r")
		_, err := s.admin.PgConn().Exec(t.Context(), `prepare stmtcache_1 as select 1`).ReadAll()
		must(t, err)
		_, problem, err := Read(t.Context(), s.admin, oid, `ok`, Boolean)
		must(t, err)
		var prepared int
		must(t, s.admin.QueryRow(t.Context(), `select count(*) from pg_prepared_statements`, pgx.QueryExecModeSimpleProtocol).Scan(&prepared))
		if problem != "" || prepared != 0 {
			t.Errorf("%d prepared statements are left, %s", prepared, problem)
		}
	})
}

// A superuser's table is read over too, by a superuser and by others.
func TestASuperusersTableIsReadOver(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		s := newSite(t, db)
		s.superuser(t, `alter table shop.r owner to postgres; revoke temporary on database `+db.Name+` from public; grant temporary on database `+db.Name+` to `+s.app)
		oid := s.oid(t, "shop.r")
		for _, conn := range []*pgx.Conn{s.admin, s.connect(t, s.app)} {
			e, problem, err := Read(t.Context(), conn, oid, `feels = 'ok' and ci operator(ext.=) 'a'`, Boolean)
			if err != nil || problem != "" || len(e.Columns) != 2 {
				t.Errorf("%+v %q %v", e, problem, err)
			}
		}
	})
}

// Who applies needs no superuser. A login that is a member of the owner reads with the owner's rights, another with its own.
func TestAnExpressionIsReadByAnyLogin(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		s := newSite(t, db)
		oid := s.oid(t, "shop.r")
		member, stranger := db.NewRole(t, "member"), db.NewRole(t, "stranger")
		s.superuser(t, `grant `+s.app+` to `+member+`; grant usage on schema shop to `+stranger)
		for _, role := range []string{member, stranger} {
			e, problem, err := Read(t.Context(), s.connect(t, role), oid, `status = 'closed' and feels = 'ok'`, Boolean)
			if err != nil || problem != "" || len(e.Columns) != 2 {
				t.Errorf("%s: %+v %q %v", role, e, problem, err)
			}
		}
		s.superuser(t, `revoke temporary on database `+db.Name+` from public`)
		_, problem, err := Read(t.Context(), s.connect(t, member), oid, `ok`, Boolean)
		must(t, err)
		if _, problem, err := Read(t.Context(), s.admin, oid, `ok`, Boolean); err != nil || problem != "" {
			t.Errorf("a superuser, of an owner who may make no temporary table: %q %v", problem, err)
		}
		for range 2 {
			_, grant, found := strings.Cut(problem, "may not make: ")
			if !found {
				break
			}
			s.superuser(t, grant)
			_, problem, err = Read(t.Context(), s.connect(t, member), oid, `ok`, Boolean)
			must(t, err)
		}
		if problem != "" {
			t.Errorf("after the printed grants: %s", problem)
		}
	})
}

// A table of as many columns as there can be, and columns with names that are hard to write.
func TestColumnsMayBeManyAndHaveAnyName(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		s := newSite(t, db)
		s.plant(t, `do $$ begin execute 'create table wide (' || (select string_agg('c' || n || ' int', ', ') from generate_series(1, 1600) n) || ')'; end $$`)
		e, problem := s.read(t, "shop.wide", `c1 > 1 and c1600 < 2`, Boolean)
		if problem != "" || e.SQL != `((t."c1" > 1) AND (t."c1600" < 2))` {
			t.Errorf("got %+v %q", e, problem)
		}
		s.plant(t, `create table odd ("a""b" int, "user" text, "CamelCase" text, "ünï" text, " " text, "$lapse$" text, "a`+"\n"+`b" text, "t" text, "now" text, "%s$1\" text)`)
		for text, want := range map[string]string{
			`"a""b" = 1`:                   `(t."a""b" = 1)`,
			`"user" = 'x'`:                 `(t."user" = 'x'::text)`,
			`"CamelCase" = ' '`:            `(t."CamelCase" = ' '::text)`,
			`ünï = 'ü' and " " = '  '`:     `((t."ünï" = 'ü'::text) AND (t." " = '  '::text))`,
			`t = 't' and "now" = 'now'`:    `((t."t" = 't'::text) AND (t."now" = 'now'::text))`,
			`"%s$1\" = E'\\'`:              `(t."%s$1\" = '\'::text)`,
			`"$lapse$" = 'x'`:              ``,
			"\"a\nb\" = 'x'":               ``,
			`"CamelCase" = 'a  b' -- note`: ``,
		} {
			e, problem := s.read(t, "shop.odd", text, Boolean)
			if want == "" && problem == "" || want != "" && (problem != "" || e.SQL != want) {
				t.Errorf("%s: got %+v %q, want %s", text, e, problem, want)
			}
		}
		if db.Major >= 18 {
			s.plant(t, `create table computed (id int, g int generated always as (id * 2) virtual, h int generated always as (id * 2) stored)`)
			if _, problem := s.read(t, "shop.computed", `g = 2`, Boolean); !strings.Contains(problem, "make it stored") {
				t.Errorf("a virtual column: %q", problem)
			}
			if _, problem := s.read(t, "shop.computed", `h = 2`, Boolean); problem != "" {
				t.Errorf("a stored column: %q", problem)
			}
		}
	})
}

// An extension in a schema where others may make functions is used, with a warning.
func TestASuperusersFunctionInAnOpenSchemaIsUsedWithAWarning(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		s := newSite(t, db)
		e, problem := s.read(t, "shop.r", `ext.slug(status) = 'x'`, Boolean)
		if problem != "" || len(e.Warnings) != 0 {
			t.Errorf("in a closed schema: %+v %q", e, problem)
		}
		s.superuser(t, fmt.Sprintf(`grant create on schema ext to %s`, s.app))
		e, problem = s.read(t, "shop.r", `ext.slug(status) = 'x'`, Boolean)
		if problem != "" || len(e.Warnings) != 1 || !strings.Contains(e.Warnings[0], "is in schema ext") {
			t.Errorf("in an open schema: %+v %q", e, problem)
		}
	})
}
