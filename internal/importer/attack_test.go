package importer

import (
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

// planted is what an application's role makes, so that code of its own may run while a superuser imports.
const planted = logs + `;
	create function app.f(v text) returns boolean language plpgsql as $$
	begin
	  raise warning 'planted code ran as %', current_user;
	  begin
	    execute 'set role postgres';
	    raise warning 'planted code became postgres';
	  exception when others then null;
	  end;
	  begin
	    delete from app.logs;
	    raise warning 'planted code deleted';
	  exception when others then null;
	  end;
	  perform set_config('search_path', 'app', false);
	  perform set_config('standard_conforming_strings', 'off', false);
	  return true;
	end $$;
	create domain app.evil as text check (app.f(value));
	create function app.now() returns timestamptz language sql as 'select ''infinity''::timestamptz';
	create function app.less(timestamptz, timestamptz) returns boolean language sql as 'select true';
	create operator app.< (leftarg = timestamptz, rightarg = timestamptz, function = app.less);
	create collation app."C" from "POSIX";
	create schema front;
	create view front.logs as select * from app.logs;
	create table app.parent (id bigint primary key, at timestamptz);
	create table app.heir () inherits (app.parent);
	create domain app.stamp as timestamptz;
	create table app.stamped (id bigint primary key, at app.stamp, hours int, due timestamp generated always as (timestamp '2020-01-01' + hours * interval '1 hour') stored);
	create function app.due() returns integer language sql as 'delete from app.logs; select 1';
	create table app.trap (id bigint primary key default app.due(), at timestamptz, "x; drop table app.logs; --" timestamptz);
	insert into app.logs select i, '2000-01-01' from generate_series(1, 10) i`

// attempts are statements that do more than a deletion may, or try to leave the function that they are parsed in.
var attempts = []struct{ text, want string }{
	{`delete from app.logs; commit; drop table app.logs`, "DROP"},
	{`delete from app.logs where created_at < now() end; drop table app.logs; begin atomic select 1`, "does not parse"},
	{`delete from app.logs where created_at < now(); end $$; drop table app.logs; --`, "not closed"},
	{"select 1; end\n; drop table app.logs", "DROP"},
	{`select app.due()`, "is not read"},
	{`select app.due() from app.logs where created_at < now()`, "is not read"},
	{`with x as (select app.due()) delete from app.logs where created_at < now()`, ""},
	{`delete from app.logs where created_at < now() and app.due() = 1`, "cannot be a policy's"},
	{`delete from app.logs where created_at < (select now())`, "does not know"},
	{`delete from app.logs where created_at operator(app.<) now()`, "does not know"},
	{`delete from app.logs where created_at < app.now()`, "does not know"},
	{`insert into app.trap default values`, ""},
	{`delete from app.logs where created_at < now() and status = any ('{a}'::app.evil[])`, "cannot be a policy's"},
	{`delete from app.logs where created_at < now() /* ; drop table app.logs`, "not closed"},
	{`delete from app.logs where created_at < now() -- ; drop table app.logs`, "table: 'app.logs' expire: { column: 'created_at' }"},
	{
		`delete from app.logs where created_at < now() and status = E'\'; drop table app.logs; --'`,
		`table: 'app.logs' expire: { column: 'created_at' } where: '(status = ''''''; drop table app.logs; --''::text)'`,
	},
	{`delete from app.trap where "x; drop table app.logs; --" < now()`, `table: 'app.trap' expire: { column: 'x; drop table app.logs; --' }`},
	{`do $$ begin delete from app.logs; end $$`, "DO runs a block"},
	{`execute nothing`, "EXECUTE"},
	{`set search_path = app; delete from app.logs where created_at < now()`, "another statement of the job changes"},
	{`copy app.logs to program 'touch /tmp/x'`, ""},
	{`delete from app.logs where created_at < 'tomorrow'`, "another time at each run"},
	{`delete from app.logs where created_at < timestamptz 'now' - interval '30 days'`, "another time at each run"},
	{`delete from app.logs where true`, "none of its conditions"},
	{`delete from app.logs`, "whatever their age"},
	{`delete from app.logs where created_at < now() or true`, "does not know"},
	{`delete from app.logs where created_at > now() - interval '30 days'`, "does not know"},
	{`delete from app.logs where created_at < now() + interval '1 day'`, "does not know"},
	{`delete from app.logs where created_at < now() - interval '30 days' and closed_at < now()`, "two of its conditions"},
	{`delete from app.logs where id not in (select id from app.logs order by created_at desc limit 1000)`, "none of its conditions"},
	{`delete from app.logs where id in (select id from app.logs where created_at < now() order by id offset 10)`, "does not know, at: OFFSET 10"},
	{`delete from app.logs where id in (select parent from app.logs where created_at < now())`, "two different columns"},
	{`delete from app.logs where id in (select id from app.other where created_at < now())`, "another table"},
	{`delete from app.logs where id in (select id from app.logs where created_at < now() union select 5)`, "does not know"},
	{`delete from app.logs where id in (select l.id from app.logs l join app.other o using (id) where l.created_at < now())`, "does not know"},
	{`delete from app.logs using app.other o where o.id = logs.id and logs.created_at < now()`, "USING"},
	{`delete from app.logs where exists (select from app.other o where o.id = logs.id) and created_at < now()`, "cannot be a policy's"},
	{`with gone as (delete from app.logs where created_at < now() returning *) insert into app.other select id, created_at from gone`, "keeps what it deletes"},
	{`with gone as (delete from app.logs where created_at < now() returning *) select id from gone`, "more with what it deletes"},
	{`with gone as (delete from app.other where created_at < now()) delete from app.logs where created_at < now()`, "changes rows too"},
	{`with recursive x as (select 1) delete from app.logs where created_at < now()`, "does not know"},
	{`delete from app.recent where created_at < now()`, "is not a table"},
	{`delete from front.logs where created_at < now()`, "is not a table"},
	{`delete from app.part where at < now()`, "is a partition"},
	{`delete from app.parted where at < now()`, "table: 'app.parted' expire: { column: 'at' }"},
	{`delete from app.parent where at < now()`, "inherits or is inherited from"},
	{`delete from only app.parent where at < now()`, "inherits or is inherited from"},
	{`delete from app.stamped where at < now() - interval '1 day'`, "does not know"},
	{`delete from app.stamped where due < now() at time zone 'utc'`, "table: 'app.stamped' expire: { column: 'due' }"},
	{`delete from only app.parted where at < now()`, "has no rows"},
	{`delete from pg_catalog.pg_class where oid = 1`, "does not know"},
	{`delete from app.logs where created_at < now() - keep`, "does not know"},
	{`delete from app.logs where created_at::date > '2020-01-01' and created_at < now()`, "time zone or DateStyle"},
	{`delete from app.logs where created_at + keep < now() - interval '1 day'`, "does not know"}, // keep may have months
	{`delete from app.logs where created_at < now() - random() * interval '1 day'`, "does not know"},
	{`delete from app.logs where ts < now() at time zone 'utc' and created_at at time zone 'Asia/Tokyo' < now() at time zone 'utc'`, "cannot be a policy's"},
	{`delete from app.logs where (j ->> 'at')::timestamptz < now()`, "does not know"},
	{`delete from app.logs where created_at < now() and id = $1`, "does not parse"},
	{ // a schema named like the table's alias
		`delete from app.logs app where app.created_at < now() and app.status = 'a' collate app."C"`,
		`table: 'app.logs' expire: { column: 'created_at' } where: '(status = (''a''::text COLLATE app."C"))'`,
	},
	{`truncate app.logs`, "TRUNCATE"},
	{`call app.clean()`, "whatever their age"},
	{`call app.clean(1)`, "CALL"},
	{`update app.logs set status = 'x' where created_at < now()`, "UPDATE"},
	{`not even sql`, "does not parse"},
	{``, ""},
	{`;;`, ""},
}

// warnings hears what planted code says.
type warnings struct {
	mu    sync.Mutex
	heard []string
}

func (w *warnings) add(_ *pgconn.PgConn, n *pgconn.Notice) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.heard = append(w.heard, n.Message)
}

// Whatever a job says, nothing of it is run, nothing stays, and no policy comes of what is not understood.
func TestNothingOfAJobRunsWhileItIsImported(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		s := newSite(t, db, "postgres", planted)
		admin := db.Connect(t)
		before := s.state(admin)
		heard := &warnings{}
		config := s.conn.Config()
		config.OnNotice = heard.add
		conn, err := pgx.ConnectConfig(t.Context(), config)
		must(t, err)
		defer func() { _ = conn.Close(t.Context()) }()
		s.Server.conn = conn
		for _, a := range attempts {
			items, err := s.job(t.Context(), &cronJob{Name: "a", Schedule: "@daily", Command: a.text, Database: db.Name, User: "postgres"}, "")
			must(t, err)
			var got []string
			for i := range items {
				if items[i].Policy != nil {
					items[i].Policy.Cron = nil
				}
				got = append(got, policyLine(&items[i]))
			}
			all := strings.Join(got, " | ")
			if !strings.Contains(all, a.want) || strings.HasPrefix(a.want, "table:") != strings.HasPrefix(all, "table:") && a.want != "" {
				t.Errorf("%s\n got %s\nwant %s", a.text, all, a.want)
			}
			if after := s.state(admin); after != before {
				t.Fatalf("%s: the database was %s, and is %s", a.text, before, after)
			}
		}
		for _, text := range heard.heard {
			if !strings.HasPrefix(text, "planted code ran as lapse_import_") {
				t.Errorf("%q", text)
			}
		}
		if len(heard.heard) == 0 {
			t.Error("the CHECK of a domain was not run by any of them: the test shows nothing")
		}
		var path string
		must(t, conn.QueryRow(t.Context(), "show search_path").Scan(&path))
		if path != schemas.SessionSettings()["search_path"] {
			t.Errorf("search_path is %s", path)
		}
	})
}

// state is all that an import could have changed.
func (s *site) state(admin *pgx.Conn) (state string) {
	s.t.Helper()
	must(s.t, admin.QueryRow(s.t.Context(), `
		select format('%s rows, %s relations, %s functions, %s of roles, %s locks', (select count(*) from app.logs), (select count(*) from pg_class where relnamespace::regnamespace::text !~ '^pg_(toast_)?temp'),
		         (select count(*) from pg_proc), (select count(*) from pg_roles where rolname like 'lapse\_import\_%'),
		         (select count(*) from pg_locks where relation = to_regclass('app.logs') and pid <> pg_backend_pid()))`).Scan(&state))
	return state
}

// A job of a role without rights is parsed with the login's, and waits for no lock.
func TestALockedTableIsSaidAndNotWaitedFor(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	app := db.NewRole(t, "app")
	s := newSite(t, db, app, logs+"; grant usage on schema app to "+app+"; grant temporary on database "+db.Name+" to "+app)
	if i := s.read(`delete from logs where created_at < now()`, utc); i.Policy == nil {
		t.Errorf("a login without rights on the table: %q", i.Lost)
	}
	admin := db.Connect(t)
	must(t, exec(admin, "begin"))
	must(t, exec(admin, "lock table app.logs in access exclusive mode"))
	must(t, exec(s.conn, "set lock_timeout = '10ms'"))
	if i := s.read(`delete from logs where created_at < now()`, utc); i.Policy != nil || !strings.Contains(strings.Join(i.Lost, ""), "a table is locked") {
		t.Errorf("a locked table: %q", i.Lost)
	}
}
