package planner

import (
	"fmt"
	"testing"

	"lapse/internal/pgtest"
)

func TestTheExecutorsLoginCanDoNothingByItself(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.fill("sessions", 10)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		b := w.lease(p, w.open(&p))
		_, err := w.call(b, nil)
		must(t, err)
		for _, sql := range []string{
			`select * from shop.sessions`,
			`select count(*) from shop.sessions`,
			`delete from shop.sessions`,
			`delete from shop.sessions where last_seen < now() - interval '30 days'`,
			`update shop.sessions set note = ''`,
			`truncate shop.sessions`,
			`do 'begin lock table shop.sessions; end'`,
			`update lapse.gate set state = 'armed'`,
			`select from lapse.gate for update`,
			`select from lapse.gate for share`,
			`delete from lapse.gate`,
			`insert into lapse.policy select * from lapse.policy`,
			`insert into lapse.policy_state (policy_id, version, state) values (1, 1, 'armed')`,
			`insert into lapse.batch select * from lapse.batch`,
			`update lapse.batch set policy = 'x'`,
			`delete from lapse.batch`,
			`truncate lapse.batch`,
			`insert into lapse.batch_result values (gen_random_uuid(), 1, 1, '{}')`,
			`update lapse.batch_result set deleted = 0`,
			`delete from lapse.batch_result`,
			`update lapse.shard set cursor = null`,
			`update lapse.shard set done = false`,
			`update lapse.shard set cutoff = now()`,
			`update lapse.run set cutoff = now()`,
			`update lapse.installation set audit_required = false`,
			`select lapse.beat(1)`,
			`create table lapse.mine ()`,
			`create function lapse.mine() returns int language sql as 'select 1'`,
			`create or replace function lapse.delete_1_1(` + DeleteArguments + `) returns int language sql as 'select 1'`,
			fmt.Sprintf(`set role %s`, testRoles.Deleter),
			fmt.Sprintf(`set role %s`, testRoles.Owner),
			fmt.Sprintf(`set role %s`, w.app),
			`set session_replication_role = replica`,
			`set track_counts = off`,
		} {
			if state := sqlState(run(w.exec, sql)); state != "42501" {
				t.Errorf("%s: got SQLSTATE %q, want 42501", sql, state)
			}
		}
	})
}

func TestNobodyElseMayCallTheFunctions(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		for _, function := range []string{
			DeleteFunction(p.ID, p.Version) + "(" + DeleteArguments + ")", SurveyFunction(p.ID, p.Version) + "(" + SurveyArguments + ")",
		} {
			for role, want := range map[string]bool{testRoles.Executor: true, testRoles.Auditor: false, w.app: false} {
				if got := valueOn[bool](t, w.admin, `select has_function_privilege($1, $2, 'execute')`, role, function); got != want {
					t.Errorf("%s may call %s: %t, want %t", role, function, got, want)
				}
			}
			owner := valueOn[string](t, w.admin, `select pg_get_userbyid(proowner) from pg_proc where oid = $1::text::regprocedure`, function)
			if owner != testRoles.Deleter {
				t.Errorf("%s belongs to %s", function, owner)
			}
		}
	})
}

// Whoever has the executor's login can make runs and shards: what they can delete with them is due all the same.
func TestAForgedShardDeletesOnlyWhatIsDue(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.fill("sessions", 10)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		r := Run{Policy: p.ID, Version: p.Version}
		must(t, w.exec.QueryRow(t.Context(), `
			insert into lapse.run (run, policy_id, version, cutoff) values (gen_random_uuid(), $1, $2, now() + interval '1 year')
			returning run, cutoff`, p.ID, p.Version).Scan(&r.ID, &r.Cutoff))
		must(t, run(w.exec, `insert into lapse.shard (run, policy_id, version, leaf, cutoff, cursor) values ($1, $2, $3, $4, $5, '{}')`,
			r.ID, p.ID, p.Version, p.TableOID, r.Cutoff))
		_, err := w.call(w.lease(p, r), nil)
		wantState(t, err, "LP003")
		if n := value[int](w, `select count(*) from sessions`); n != 20 {
			t.Errorf("%d rows are left, want 20", n)
		}
	})
}

// The application's settings, and hostile ones, do not change what the function does.
func TestTheCallersSettingsDoNotMatter(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table "od\d'" ("i""d\" text primary key, "at\'" timestamp not null)`)
		w.do(`insert into "od\d'" select n || E'\\''"x', now() at time zone 'UTC' - interval '1 mon' - n * interval '7 hours' from generate_series(-20, 20) n`)
		must(t, run(w.admin, `create schema evil`))
		p := w.armed("policies:\n  - name: p\n    table: 'shop.\"od\\d''\"'\n    expire: { column: 'at\\''', after: 1 mon }\n    state: armed\n")
		r := w.open(&p)
		for _, set := range []string{
			`set search_path = evil, shop, public`, `set timezone = 'Asia/Kathmandu'`, `set datestyle = 'SQL, DMY'`,
			`set intervalstyle = 'iso_8601'`, `set standard_conforming_strings = off`, `set extra_float_digits = -15`,
			`set bytea_output = 'escape'`, `set enable_tidscan = off`, `set enable_indexscan = off`, `set row_security = on`,
			`set quote_all_identifiers = on`, `set check_function_bodies = off`, `set array_nulls = off`,
			`set default_transaction_isolation = 'read committed'`, `set plan_cache_mode = force_generic_plan`,
		} {
			must(t, run(w.exec, set))
		}
		want := value[int](w, `select count(*) from "od\d'" where "at\'" + interval '1 mon' > now() at time zone 'UTC'`)
		w.deleteAll(p, r, 3)
		if got := value[int](w, `select count(*) from "od\d'"`); got != want {
			t.Errorf("%d rows are left, want %d", got, want)
		}
		if want == 0 || want == 41 {
			t.Fatal("the test has no rows on one side")
		}
	})
}
