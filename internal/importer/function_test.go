package importer

import (
	"strings"
	"testing"

	"lapse/internal/pgtest"
)

// bodies are functions as jobs call them, and the policy or the reason; "" for one that cannot be made.
var bodies = []struct{ language, more, body, want string }{
	{"sql", "", `delete from app.logs where created_at < now() - interval '1 day'`, "table: 'app.logs' expire: { column: 'created_at', after: 1 day }"},
	{"plpgsql", "", `begin delete from app.logs where created_at < now() - interval '1 day'; end`, "expire: { column: 'created_at', after: 1 day }"},
	{
		"plpgsql", "", `declare n integer; begin delete from app.logs where created_at < now() - interval '1 day'; get diagnostics n = row_count; raise notice '% rows', n; return; end;`,
		"expire: { column: 'created_at', after: 1 day }",
	},
	{"plpgsql", "set search_path = app", `begin delete from logs where created_at < now(); delete from other where created_at < now(); end`, "table: 'app.logs' expire: { column: 'created_at' } | table: 'app.other' expire: { column: 'created_at' }"},
	{"plpgsql", "set timezone = 'Europe/Berlin'", `begin delete from app.logs where ts < now(); end`, "zone: 'Europe/Berlin'"},
	{"plpgsql", "", `begin if true then delete from app.logs where created_at < now(); end if; end`, "is not read"},
	{"plpgsql", "", `begin loop delete from app.logs where created_at < now(); exit when not found; end loop; end`, "is not read"},
	{"plpgsql", "", `begin return; delete from app.logs where created_at < now(); end`, "is not read"},
	{"plpgsql", "", `begin raise 'no'; delete from app.logs where created_at < now(); end`, "is not read"},
	{"plpgsql", "", `declare k timestamptz := app.other_clock(); begin delete from app.logs where created_at < now(); end`, "is not read"},
	{"plpgsql", "", `declare k timestamptz; begin k := now(); delete from app.logs where created_at < k; end`, "is not read"},
	{"plpgsql", "", `declare k integer; begin delete from app.logs where created_at < now() - interval '1 day' * m; end`, "does not parse"},
	{"plpgsql", "", `declare n integer; status text; begin delete from app.logs where status is null and created_at < now(); end`, "is not read"},
	{"plpgsql", "set standard_conforming_strings = off", `begin delete from app.logs where status = 'a\\b' and created_at < now(); end`, "has another standard_conforming_strings"},
	{"sql", "set transform_null_equals = on", `delete from app.logs where not status = null and created_at < now()`, "has another transform_null_equals"},
	{"sql", "set array_nulls = on", `delete from app.logs where created_at < now()`, "expire: { column: 'created_at' }"},
	{"plpgsql", "", `begin execute 'delete from app.logs'; end`, "is not read"},
	{"plpgsql", "", `begin perform set_config('search_path', 'app', false); delete from app.logs where created_at < now(); end`, "is not read"},
	{"sql", "", `select set_config('search_path', 'app', false); delete from app.logs where created_at < now()`, "another statement of the job changes"},
	{"plpgsql", "", `begin begin delete from app.logs where created_at < now(); exception when others then null; end; end`, "is not read"},
	{"plpgsql", "", "#variable_conflict use_variable\ndeclare status text; begin delete from app.logs where status = 'x' and created_at < now(); end", "is not read"},
}

func TestAFunctionThatOnlyDeletesIsRead(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	s := newSite(t, db, "postgres", logs)
	s.usual.Zone, s.usual.assumedZone = utc, true
	for _, b := range bodies {
		db.Exec(t, "create or replace function app.f() returns void language "+b.language+" "+b.more+" as $lapse$"+b.body+"$lapse$")
		for _, call := range []string{"select app.f()", "/* nightly */ SELECT * FROM \"app\".F ( );"} {
			items, err := s.job(t.Context(), &cronJob{Schedule: "@daily", Command: call, Database: db.Name, User: "postgres"}, "")
			must(t, err)
			var got []string
			for i := range items {
				if items[i].Policy != nil {
					items[i].Policy.Cron = nil
				}
				got = append(got, policyLine(&items[i]))
			}
			if all := strings.Join(got, " | "); !strings.Contains(all, b.want) {
				t.Errorf("%s %s\n got %s\nwant %s", b.more, b.body, all, b.want)
			}
		}
		db.Exec(t, "drop function app.f()")
	}
	for _, call := range []string{"select app.missing()", "select app.old(now())", "select app.due() from app.logs", "select 1"} {
		items, err := s.job(t.Context(), &cronJob{Schedule: "@daily", Command: call, Database: db.Name, User: "postgres"}, "")
		must(t, err)
		if len(items) != 1 || items[0].Policy != nil {
			t.Errorf("%s: %+v", call, items)
		}
	}
	items, err := s.job(t.Context(), &cronJob{Schedule: "@daily", Command: "call app.clean()", Database: db.Name, User: "postgres"}, "")
	must(t, err)
	if len(items) != 1 || !strings.Contains(policyLine(&items[0]), "whatever their age") {
		t.Errorf("a procedure: %+v", items)
	}
	items, err = s.job(t.Context(), &cronJob{Schedule: "@daily", Command: "/* */ set search_path = x; delete from app.logs where created_at < now()", Database: db.Name, User: "postgres"}, "")
	must(t, err)
	if len(items) != 2 || items[1].Policy != nil {
		t.Errorf("a setting after a comment: %+v", items)
	}
}

// What a job means depends on its session: the role's settings in the database, the role's, the database's, and then the server's.
func TestAJobIsReadInItsRolesSession(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	role := db.NewRole(t, "cron")
	s := newSite(t, db, "postgres", logs+`; alter database `+db.Name+` set timezone = 'Asia/Tokyo'; alter role `+role+` set search_path = app`)
	for user, want := range map[string]string{
		role:       "table: 'app.logs' expire: { column: 'ts', zone: 'Asia/Tokyo' }",
		"postgres": "relation \"logs\" does not exist",
	} {
		items, err := s.job(t.Context(), &cronJob{Schedule: "@daily", Command: "delete from logs where ts < now()", Database: db.Name, User: user}, "")
		must(t, err)
		if len(items) != 1 || !strings.Contains(policyLine(&items[0]), want) {
			t.Errorf("%s: %q, want %s", user, policyLine(&items[0]), want)
		}
	}
	db.Exec(t, "alter table app.other enable row level security; alter table app.other owner to "+role)
	for more, want := range map[string]string{"": "table: 'app.other' expire: { column: 'created_at' }", "; alter table app.other force row level security": "decides which rows the job sees"} {
		db.Exec(t, "alter table app.other no force row level security"+more)
		items, err := s.job(t.Context(), &cronJob{Schedule: "@daily", Command: "delete from other where created_at < now()", Database: db.Name, User: role}, "")
		must(t, err)
		if len(items) != 1 || !strings.Contains(policyLine(&items[0]), want) {
			t.Errorf("row security%s: %q, want %s", more, policyLine(&items[0]), want)
		}
	}
	items, err := cronText(t.Context(), s.Server, `[{"jobid": 7, "schedule": "@daily", "command": "delete from app.logs where created_at < now()", "database": "elsewhere", "username": "postgres"}]`)
	must(t, err)
	if len(items) != 2 || items[1].Policy == nil || !strings.Contains(items[0].Origin, "elsewhere") {
		t.Errorf("jobs of another database, from text: %+v", items)
	}
}

// Of a SECURITY DEFINER function "$user" in the path is the owner, and after ALTER ROLE SET role it is that role: their schemas have tables
// of the same name. A policy of the caller's would delete rows that the job leaves.
func TestAPathsUserIsTheRoleThatDeletes(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		caller, owner, other := db.NewRole(t, "caller"), db.NewRole(t, "owner"), db.NewRole(t, "other")
		ddl := logs + "; grant " + owner + ", " + other + " to " + caller
		for _, schema := range []string{caller, owner, "public"} {
			ddl += "; create schema if not exists " + schema + "; create table " + schema + ".logs (id bigint primary key, at timestamptz)"
		}
		s := newSite(t, db, "postgres", ddl+"; grant usage on schema app, "+caller+", "+owner+" to public; grant all on "+caller+".logs, "+owner+".logs, public.logs to public")
		s.usual.Zone, s.usual.assumedZone, s.usual.SearchPath = utc, true, `$user, public`
		for _, c := range []struct{ more, role, want string }{
			{"", "", caller},
			{"set search_path = public", "", "public"},
			{`set search_path = '$user', public`, "", caller},
			{"security definer", "", owner},
			{`security definer set search_path = '$user', public`, "", owner},
			{"", owner, owner},
			{"", other, "public"},
		} {
			db.Exec(t, "alter role "+caller+" reset all")
			if c.role != "" {
				db.Exec(t, "alter role "+caller+" set role = "+c.role)
			}
			db.Exec(t, "set check_function_bodies = off; create function app.f() returns void language sql "+c.more+
				" as 'delete from logs where at < now()'; alter function app.f() owner to "+owner)
			items, err := s.job(t.Context(), &cronJob{Schedule: "@daily", Command: "select app.f()", Database: db.Name, User: caller}, "")
			must(t, err)
			if len(items) != 1 || items[0].Policy == nil || items[0].Policy.Table != c.want+".logs" {
				t.Errorf("%q as %q: %s, and the job deletes from %s.logs", c.more, c.role, policyLine(&items[0]), c.want)
			}
			for _, schema := range []string{caller, owner, "public"} {
				db.Exec(t, "insert into "+schema+".logs values (1, '2000-01-01') on conflict do nothing")
			}
			must(t, exec(db.ConnectAs(t, caller), "select app.f()"))
			var left int
			must(t, s.conn.QueryRow(t.Context(), "select count(*) from "+c.want+".logs").Scan(&left))
			if left != 0 {
				t.Errorf("%q as %q: the job itself leaves %s.logs as it is", c.more, c.role, c.want)
			}
			db.Exec(t, "drop function app.f()")
		}
	})
}
