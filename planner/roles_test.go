package planner

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"lapse/internal/pgtest"
	"lapse/planner/functions"
)

// tables and functions of schema lapse that role may do something with, as "function" and "table: privilege".
const reachable = `
	select coalesce(string_agg(what, ', ' order by what), '')
	  from (select format('%s(%s)', p.proname, pg_get_function_identity_arguments(p.oid)) as what
	          from pg_proc p
	         where p.pronamespace = 'lapse'::regnamespace and has_function_privilege($1, p.oid, 'execute')
	        union all
	        select format('%s: %s', c.relname, w.privilege)
	          from pg_class c, unnest('{select,insert,update,delete,truncate,references,trigger}'::text[]) w(privilege)
	         where c.relnamespace = 'lapse'::regnamespace and c.relkind in ('r', 'v')
	           and (has_table_privilege($1, c.oid, w.privilege)
	                or w.privilege in ('select', 'insert', 'update', 'references') and has_any_column_privilege($1, c.oid, w.privilege))
	        union all
	        select format('%s: sequence', c.relname) from pg_class c
	         where c.relnamespace = 'lapse'::regnamespace 
	           and case when c.relkind = 'S' then has_sequence_privilege($1, c.oid, 'usage, select, update') end
	        union all
	        select 'schema: create' where has_schema_privilege($1, 'lapse', 'create')) all_of_it
	 where not $2 or what !~ ': select$'`

// What a deleter may do is exactly to call its part of a batch. Its own functions belong to it.
func TestADeleterMayCallTheFixedFunctionsAndNothingElse(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		const own = "delete_1_1(claim lapse.claim, mac bytea, work lapse.work), due_1_1(at_cutoff timestamp with time zone, quiet bigint[]), "
		const want = own + "find_1_1(claim lapse.claim, work lapse.work, place lapse.place), " +
			"lock_rows(claim lapse.claim, work lapse.work, place lapse.place, aim lapse.aim, bound anyelement, source text, due text, lock text, key text), " +
			"enter(claim lapse.claim, work lapse.work, policy integer, version integer, largest integer, proof bytea), inspect(policy integer, version integer), cascade_statement(root oid, due text), held_keys(hold integer, proof bytea), quarantined_keys(policy integer, version integer, leaf oid, at timestamp with time zone, proof bytea), held_rows(policy integer, version integer, proof bytea), " +
			"leave(claim lapse.claim, work lapse.work, portions lapse.portions, before lapse.tally, last text[], ended boolean, locked oid[]), " +
			"caller: select, candidates(policy integer, version integer, ordered_by name, upto timestamp without time zone, settled timestamp without time zone, quiet bigint[]), inspect_leaf(policy integer, version integer, leaf oid, name text, proof bytea, OUT spared text, OUT kept boolean, OUT low timestamp with time zone, OUT low_until timestamp with time zone), clear(claim lapse.claim, work lapse.work), " +
			"check_leaf(claim lapse.claim, work lapse.work, leaf text, OUT spared text, OUT ways jsonb, OUT answers text), pin(), next_portion(portions lapse.portions, work lapse.work, aim lapse.aim, gone bigint), record(claim lapse.claim, mac bytea, work lapse.work), " +
			"readable(relation oid), locker(relation oid, rows_at tid[]), lock_along(leaf oid, rows_at tid[], ways jsonb), quarantine_kept(claim lapse.claim, work lapse.work, keys text[], by oid[]), " +
			"kept_by(leaf oid[], free tid[], all_seeds tid[], all_rels oid[], all_ats tid[], kept_seeds tid[], kept_rels oid[], kept_ats tid[], kept_by oid[]), " +
			"awaited(relation oid), part(claim lapse.claim, work lapse.work, due_column name), leave_drop(claim lapse.claim, work lapse.work, why text), " +
			"record_drop(claim lapse.claim, mac bytea, work lapse.work, rows bigint, oldest timestamp with time zone, newest timestamp with time zone), " +
			"resist(claim lapse.claim, work lapse.work, key text[], state text, schema_name text, table_name text, constraint_name text, column_name text, stack text), " +
			"survey_1_1(at_cutoff timestamp with time zone, at_most bigint, look_through bigint)"
		if got := valueOn[string](t, w.admin, reachable, w.deleter(), false); sorted(got) != sorted(want) {
			t.Errorf("the deleter may\n%s\nwant\n%s", got, want)
		}
		const executor = own + "begin_snapshot(policy integer, version integer, every interval), take_snapshot(snapshot uuid, seen pg_snapshot, cutoff timestamp with time zone), end_snapshot(snapshot uuid, due bigint, overdue bigint, held bigint, quarantined bigint, oldest_over bigint, not_counted text), changed_columns(relation oid, columns jsonb), meaning(type oid, collated oid), parts(types oid[]), close_run(run uuid, left_due bigint, left_held bigint, left_resting bigint, oldest timestamp with time zone), note_due(run uuid, due bigint), report(holder text, policies integer[], states text[], reasons text[], tries timestamp with time zone[], held text[]), hold_faults(), counted(policy integer, version integer, due bigint, exact boolean, oldest timestamp with time zone), suspend_run(run uuid, reason text), statistics(run uuid), acquaint(policy integer, version integer, leaves oid[], ordered_by name), looked(policy integer, version integer), ignore_marks(policy integer), passed(policy integer, version integer, took interval), advance_arming(policy integer), part_of(root oid, leaf oid, cutoff timestamp with time zone, due_column name), code(targets oid[], updates boolean), end_run(run uuid, reason text), forgive(policy integer, since timestamp with time zone), publications_fault(), publications_trouble(), system_identifier(), timeline(), intruders(targets oid[], updates boolean), leaves(root oid), lease(run uuid, holder text), " +
			"measure(policy integer), prune(days integer), open_run(policy integer, version integer, wanted uuid, cut_leaves oid[], cuts timestamp with time zone[], heaps oid[], due oid[], rows bigint), put_aside(shard bigint, term bigint, holder text, state text), " +
			"reach(targets oid[]), release(shard bigint, term bigint, holder text), remember(memory uuid), survey_1_1(at_cutoff timestamp with time zone, at_most bigint, look_through bigint), take_rows(shard bigint, term bigint, holder text, wanted integer), trip(policy integer, version integer, cause text, due bigint, table_rows bigint, compared bigint), unseen(targets oid[], updates boolean)"
		got := valueOn[string](t, w.admin, reachable, testRoles.Executor, true)
		if sorted(got) != sorted(executor) {
			t.Errorf("the executor may, beside reading,\n%s\nwant\n%s", got, executor)
		}
		if got := valueOn[string](t, w.admin, reachable, w.app, false); got != "" {
			t.Errorf("the application may %s in schema lapse", got)
		}
		var member, login, inherits string
		must(t, w.admin.QueryRow(t.Context(), `
			select string_agg(g.rolname, ', '), bool_or(r.rolcanlogin)::text, bool_and(r.rolinherit)::text
			  from pg_roles r left join pg_auth_members m on m.member = r.oid left join pg_roles g on g.oid = m.roleid
			 where r.rolname = $1`, w.deleter()).Scan(&member, &login, &inherits))
		if member != w.app || login != "false" || inherits != "true" {
			t.Errorf("the deleter is a member of %s, may log in: %s, inherits: %s", member, login, inherits)
		}
	})
}

// sorted puts a list of signatures into an order that no locale changes.
func sorted(list string) string {
	all := strings.Split(strings.ReplaceAll(list, "), ", ")\n"), "\n")
	slices.Sort(all)
	return strings.Join(all, "\n")
}

func TestNobodyElseMayCallTheFunctions(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		for _, function := range []string{
			functions.DeleteFunction(p.ID, p.Version) + "(lapse.claim, bytea, lapse.work)", functions.SurveyFunction(p.ID, p.Version) + "(timestamptz, bigint, bigint)",
		} {
			grantees := valueOn[[]string](t, w.admin, `
				select array_agg(coalesce(g.rolname, 'public') || ' by ' || r.rolname order by g.rolname)
				  from pg_proc p, aclexplode(p.proacl) a left join pg_roles g on g.oid = a.grantee left join pg_roles r on r.oid = a.grantor
				 where p.oid = $1::text::regprocedure and a.privilege_type = 'EXECUTE'`, function)
			deleter := w.deleter()
			want := fmt.Sprint([]string{deleter + " by " + deleter, testRoles.Executor + " by " + deleter})
			if got := fmt.Sprint(grantees); got != want {
				t.Errorf("%s may be called by %s, want %s", function, got, want)
			}
			owner := valueOn[string](t, w.admin, `select pg_get_userbyid(proowner) from pg_proc where oid = $1::text::regprocedure`, function)
			if owner != deleter {
				t.Errorf("%s belongs to %s", function, owner)
			}
		}
	})
}

// The application's settings, and hostile ones, do not change what the function does.
func TestTheCallersSettingsDoNotMatter(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table "od\d'" ("i""d\" text primary key, "at\'" timestamp not null)`)
		w.do(`insert into "od\d'" select n || E'\\''"x', now() at time zone 'UTC' - interval '1 mon' - n * interval '7 hours' from generate_series(-20, 20) n`)
		must(t, runSQL(w.admin, `create schema evil`))
		p := w.armed("policies:\n  - name: p\n    table: 'shop.\"od\\d''\"'\n    expire: { column: 'at\\''', after: 1 mon }\n    state: armed\n")
		r := w.open(&p)
		for _, set := range []string{
			`set search_path = evil, shop, public`, `set timezone = 'Asia/Kathmandu'`, `set datestyle = 'SQL, DMY'`,
			`set intervalstyle = 'iso_8601'`, `set standard_conforming_strings = off`, `set extra_float_digits = -15`,
			`set bytea_output = 'escape'`, `set enable_tidscan = off`, `set enable_indexscan = off`, `set row_security = on`,
			`set quote_all_identifiers = on`, `set check_function_bodies = off`, `set array_nulls = off`,
			`set default_transaction_isolation = 'read committed'`, `set plan_cache_mode = force_generic_plan`,
			`set jit = on`, `set jit_above_cost = 0`, `set constraint_exclusion = on`, `set transform_null_equals = on`,
		} {
			must(t, runSQL(w.exec, set))
		}
		const left = `select coalesce(array_agg("i""d\" order by "i""d\" collate "C"), '{}') from "od\d'"`
		want := value[[]string](w, left+` where "at\'" + interval '1 mon' > $1 at time zone 'UTC'`, r.Cutoff)
		total := w.deleteAll(p, r, 3)
		if got := value[[]string](w, left); !slices.Equal(got, want) {
			t.Errorf("rows %q are left, want %q", got, want)
		}
		if len(want) != 20 || total.Deleted != 21 || total.Picked != 21 {
			t.Errorf("%d rows are to stay and %+v went, want 20 and 21", len(want), total)
		}
	})
}

// A caller's settings, or those of code inside a batch, make no row due.
func TestTheCallersSettingsMakeNoRowDue(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table s (id bigint primary key, stamp text, payload bytea, tags text[])`)
		w.do(`insert into s
			select 1, to_char(now() at time zone 'UTC' - interval '30 days 2 hours', 'YYYY-MM-DD HH24:MI') || ' EST', ''::bytea, '{}'::text[] -- due in three hours, twelve hours ago in Australia
			 union all select 2, '2020-01-01 00:00 EST', '', '{}'
			 union all select 3, '2020-01-01 00:00 EST', '\xff', '{}'
			 union all select 4, '2020-01-01 00:00 EST', '', array[null]`)
		p := w.armed(`
policies:
  - name: p
    table: shop.s
    expire: { expression: "stamp::timestamptz + interval '30 days'" }
    where: |-
      payload::text <> '\xff' and tags <> '{NULL}'::text[]
    every: 1 hour
    state: armed
`)
		r := w.open(&p)
		for _, set := range []string{`set timezone_abbreviations = 'Australia'`, `set bytea_output = 'escape'`, `set array_nulls = off`} {
			must(t, runSQL(w.exec, set))
		}
		w.deleteAll(p, r, 3)
		if got := value[[]int](w, `select array_agg(id order by id) from s`); !slices.Equal(got, []int{1, 3, 4}) {
			t.Errorf("rows %d are left, want 1, 3 and 4", got)
		}
	})
}
