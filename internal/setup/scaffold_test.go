package setup_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/internal/setup/site"
	"lapse/internal/setup/tables"
	"lapse/planner"
	"lapse/schemas"
)

// shapeOf is all that a scaffold could change of a schema, but for rows.
const shapeOf = `
	select coalesce(string_agg(what, e'\n' order by what), '')
	  from (select format('column %s %s %s %s', a.attrelid::regclass, a.attname, format_type(a.atttypid, a.atttypmod), pg_get_expr(d.adbin, d.adrelid)) as what
	          from pg_attribute a join pg_class c on c.oid = a.attrelid left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
	         where c.relnamespace = $1::regnamespace and c.relkind in ('r', 'p') and a.attnum > 0 and not a.attisdropped
	        union all
	        select pg_get_triggerdef(t.oid) from pg_trigger t join pg_class c on c.oid = t.tgrelid where c.relnamespace = $1::regnamespace and not t.tgisinternal
	        union all
	        select pg_get_functiondef(p.oid) || p.proowner::regrole from pg_proc p where p.pronamespace = $1::regnamespace
	        union all
	        select format('%s %s %s %s', c.oid::regclass, c.relkind, c.relowner::regrole, c.relacl) from pg_class c where c.relnamespace = $1::regnamespace
	        union all
	        select pg_get_constraintdef(k.oid) from pg_constraint k where k.connamespace = $1::regnamespace and k.contype <> 'n') s`

// scaffolded is a table with data, and a login that may scaffold it.
type scaffolded struct {
	*place
	owner, writer string
	conn          *pgx.Conn
}

func newScaffolded(t *testing.T, db *pgtest.DB) *scaffolded {
	t.Helper()
	s := &scaffolded{place: newPlace(t, db), owner: db.NewRole(t, "apper"), writer: db.NewRole(t, "writer")}
	login := db.NewRole(t, "admin")
	db.Exec(t, fmt.Sprintf(`grant %[1]s to %[2]s; create schema app authorization %[1]s; set role %[1]s; grant usage on schema app to %[3]s;
		create table app.plain (id bigint primary key, note text);
		create table app."Ta""ble's" ("Key" int, tenant text collate "C", note text, primary key (tenant, "Key"));
		create table app.parts (id bigint, day date, note text, primary key (id, day)) partition by range (day);
		create table app.parts_1 partition of app.parts for values from ('2020-01-01') to ('2021-01-01');
		create table app.parts_2 partition of app.parts for values from ('2021-01-01') to ('2022-01-01') partition by hash (id);
		create table app.parts_3 partition of app.parts_2 for values with (modulus 1, remainder 0);
		insert into app.plain select n, '' from generate_series(1, 2000) n;
		insert into app."Ta""ble's" select n, 't', '' from generate_series(1, 20) n;
		insert into app.parts select n, date '2020-06-01' + n %% 2 * 366, '' from generate_series(1, 20) n;
		grant select, insert, update on app.plain, app."Ta""ble's", app.parts to %[3]s`, s.owner, login, s.writer))
	s.conn = db.ConnectAs(t, login)
	return s
}

// do makes a scaffold, or takes it away.
func (s *scaffolded) do(table string, option planner.ScaffoldOption, change func(*tables.Scaffolder)) *tables.Scaffolding {
	s.t.Helper()
	w, does, err := s.look(table, option, change)
	s.must(err)
	s.must(does.Execute(s.t.Context(), w))
	return w
}

func (s *scaffolded) look(table string, option planner.ScaffoldOption, change func(*tables.Scaffolder)) (*tables.Scaffolding, *tables.Scaffolder, error) {
	does := &tables.Scaffolder{
		Session: site.Session{Conn: s.conn, Roles: s.roles, Log: slog.New(slog.DiscardHandler)},
		Table:   table, Option: option, After: "90 days", Column: "due at",
	}
	if change != nil {
		change(does)
	}
	w, err := does.Preview(s.t.Context())
	return w, does, err
}

// scaffoldedTables are the tables, with what a row is inserted by.
func scaffoldedTables() map[string]string {
	return map[string]string{
		"app.plain":       `insert into app.plain values (5001, 'x')`,
		`app."Ta""ble's"`: `insert into app."Ta""ble's" values (5001, 'o', 'x')`,
		"app.parts":       `insert into app.parts values (5001, '2021-02-01', 'x')`,
	}
}

func TestAScaffoldGivesEachNewRowATimeAndIsTakenBackWhole(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		s := newScaffolded(t, db)
		shape := func() string { return one[string](s.place, shapeOf, "app") }
		writer := db.ConnectAs(t, s.writer)
		before := shape()
		files := one[string](s.place, `select string_agg(relfilenode::text, ' ' order by oid) from pg_class where relnamespace = 'app'::regnamespace and relkind = 'r'`)
		for table, insert := range scaffoldedTables() {
			for _, option := range []planner.ScaffoldOption{planner.ScaffoldExpiresAt, planner.ScaffoldTTL, planner.ScaffoldSidecar} {
				due := `select count(*) filter (where "due at" between now() + interval '89 days' and now() + interval '91 days') || ' of ' || count("due at") from ` + table
				if option == planner.ScaffoldSidecar {
					w, _, err := s.look(table, option, nil)
					s.must(err)
					due = strings.Replace(due, "from "+table, "from "+schemas.Identifier("app", w.RegistryName()), 1)
				}
				check := func(when, want string) {
					t.Helper()
					if got := one[string](s.place, due); got != want {
						t.Errorf("%s, %s, %s: rows that are due in 90 days: %s, want %s", table, option, when, got, want)
					}
				}
				refresh := func(on bool) func(*tables.Scaffolder) {
					return func(d *tables.Scaffolder) { d.Refresh = on }
				}
				s.do(table, option, refresh(true))
				s.do(table, option, refresh(false))
				once := shape()
				s.do(table, option, refresh(false))
				if again := shape(); again != once {
					t.Errorf("%s, %s: the second time makes\n%s\nof\n%s", table, option, again, once)
				}
				check("at first", "0 of 0")
				_, err := writer.Exec(t.Context(), insert)
				s.must(err)
				check("after an INSERT of somebody who may no more", "1 of 1")
				s.must(exec(t.Context(), writer, `update `+table+` set note = 'y' where note = ''`))
				check("after an UPDATE", "1 of 1")
				s.do(table, option, refresh(true))
				s.must(exec(t.Context(), writer, `update `+table+` set note = 'z' where note = 'x'`))
				check("after an UPDATE that starts again", "1 of 1")
				w, _, err := s.look(table, option, func(d *tables.Scaffolder) { d.Backfill = true })
				s.must(err)
				owner := db.ConnectAs(t, s.owner)
				s.must(exec(t.Context(), owner, w.Backfill))
				rows := one[string](s.place, `select count(*)::text from `+table)
				check("after a backfill", rows+" of "+rows)

				drop := func(data bool) func(*tables.Scaffolder) {
					return func(d *tables.Scaffolder) { d.Drop, d.DropData = true, data }
				}
				s.do(table, option, drop(false))
				check("after a drop", rows+" of "+rows)
				if option != planner.ScaffoldSidecar {
					s.must(exec(t.Context(), writer, strings.Replace(insert, "5001", "5002", 1)))
					check("of a row inserted after it", rows+" of "+rows)
				}
				s.do(table, option, drop(true))
				s.do(table, option, drop(true))
				if after := shape(); after != before {
					t.Errorf("%s, %s: after the drop there is\n%s\nof\n%s", table, option, after, before)
				}
				db.Exec(t, `delete from `+table+` where note in ('x', 'z')`, `update `+table+` set note = ''`)
			}
		}
		if now := one[string](s.place, `select string_agg(relfilenode::text, ' ' order by oid) from pg_class where relnamespace = 'app'::regnamespace and relkind = 'r'`); now != files {
			t.Errorf("a table was rewritten: %s, and then %s", files, now)
		}
	})
}

// exec runs a script as the application would: one statement after the other.
func exec(ctx context.Context, conn *pgx.Conn, script string) error {
	for _, statement := range strings.SplitAfter(script, "pg_temp;\n") {
		statement, reset := strings.CutSuffix(strings.TrimSpace(statement), "reset search_path;")
		if _, err := conn.PgConn().Exec(ctx, statement).ReadAll(); err != nil {
			return err
		}
		if reset {
			if _, err := conn.PgConn().Exec(ctx, "reset search_path").ReadAll(); err != nil {
				return err
			}
		}
	}
	return nil
}

func TestAScaffoldIsRefusedWhereItWouldNotFit(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		s := newScaffolded(t, db)
		db.Exec(t, "set role "+s.owner+`; create view app.v as select 1; create table app.bare (id int, "due at" date); create table app.plain_ttl (id int)`)
		for _, c := range []struct {
			table  string
			option planner.ScaffoldOption
			want   string
		}{
			{"app.bare", planner.ScaffoldExpiresAt, "of type date and not timestamp with time zone"},
			{"app.bare", planner.ScaffoldSidecar, "which has none"},
			{"app.plain", planner.ScaffoldSidecar, "is there already, and no scaffold made it"},
			{"app.v", planner.ScaffoldExpiresAt, "name a table"},
			{"app.parts_1", planner.ScaffoldExpiresAt, "the root"},
			{"app.nothing", planner.ScaffoldExpiresAt, "there is no table"},
			{"plain", planner.ScaffoldExpiresAt, "schema.table"},
			{`app."`, planner.ScaffoldExpiresAt, "schema.table"},
			{"pg_catalog.pg_class", planner.ScaffoldExpiresAt, "no table of yours"},
		} {
			_, _, err := s.look(c.table, c.option, nil)
			var refused *tables.ScaffoldError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s, %s: %v, want a refusal with %q", c.table, c.option, err, c.want)
			}
		}
		if _, _, err := s.look("app.plain", planner.ScaffoldExpiresAt, func(d *tables.Scaffolder) { d.After = "soon" }); err == nil || !strings.Contains(err.Error(), "--after") {
			t.Errorf("a duration: %v", err)
		}
		nobody := db.ConnectAs(t, db.NewRole(t, "nobody"))
		w, does, err := s.look("app.plain", planner.ScaffoldExpiresAt, nil)
		s.must(err)
		does.Conn = nobody
		if err := does.Execute(t.Context(), w); err == nil || !strings.Contains(err.Error(), "a member of") {
			t.Errorf("as a login without the right: %v", err)
		}
	})
}

func TestAColumnThatWasThereBeforeAScaffoldStaysBehindIt(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		s := newScaffolded(t, db)
		db.Exec(t, "set role "+s.owner+`; alter table app.plain add created_at timestamptz default '2020-01-01', add "due at" timestamptz`)
		before := one[string](s.place, shapeOf, "app")
		s.do("app.plain", planner.ScaffoldTTL, nil)
		db.Exec(t, `insert into app.plain values (9000)`)
		if got := one[string](s.place, `select to_char("due at" at time zone 'UTC', 'YYYY-MM-DD') from app.plain where id = 9000`); got != "2020-03-31" {
			t.Errorf("the row is due at %s, want 90 days after the table's own default", got)
		}
		s.do("app.plain", planner.ScaffoldTTL, func(d *tables.Scaffolder) { d.Drop, d.DropData = true, true })
		if after := one[string](s.place, shapeOf, "app"); after != before {
			t.Errorf("after the drop there is\n%s\nof\n%s", after, before)
		}
	})
}

// The application writes meanwhile, and somebody holds the table: nobody waits for the scaffold, and it comes through.
func TestAScaffoldWaitsForAnOpenTransactionInShortTries(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		s := newScaffolded(t, db)
		holder := db.ConnectAs(t, s.owner)
		s.must(exec(t.Context(), holder, "begin; select from app.plain limit 1"))
		w, does, err := s.look("app.plain", planner.ScaffoldExpiresAt, nil)
		s.must(err)
		tries := make(chan struct{}, 100)
		does.Log = slog.New(slog.NewTextHandler(signal(tries), nil))
		done := make(chan error, 1)
		go func() { done <- does.Execute(t.Context(), w) }()
		<-tries // it has given the lock up once
		s.must(exec(t.Context(), holder, "commit"))
		s.must(<-done)
	})
}

// signal is a log that says that something was logged.
type signal chan struct{}

func (s signal) Write(p []byte) (int, error) {
	s <- struct{}{}
	return len(p), nil
}

// A superuser's table cannot have a sidecar: who is told so by apply has made one by then.
func TestASidecarIsNotMadeForASuperusersTable(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, 14)
	p := installed(t, db)
	db.Exec(t, `create table public.root (id int primary key, at timestamptz)`)
	look := func(option planner.ScaffoldOption, drop bool) error {
		_, err := (&tables.Scaffolder{Session: site.Session{Conn: p.admin, Roles: p.roles}, Table: "public.root", Option: option, After: "1 day", Column: "expires_at", Drop: drop}).Preview(t.Context())
		return err
	}
	if err := look(planner.ScaffoldSidecar, false); err == nil || !strings.Contains(err.Error(), "alter table public.root owner to another role") {
		t.Errorf("got %v", err)
	}
	if err := errors.Join(look(planner.ScaffoldSidecar, true), look(planner.ScaffoldExpiresAt, false)); err != nil {
		t.Error(err)
	}
}
