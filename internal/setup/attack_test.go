package setup_test

import (
	"fmt"
	"strings"
	"testing"

	"lapse/internal/pgtest"
)

// Whatever code the owner of a table gets to run inside a batch runs as the owner's deleter. It is run here by a function
// of the deleter's own, as the owner's session and as the executor's.
func TestAnOwnersCodeInADeletionCanDoNoMoreThanTheOwner(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		p := installed(t, db)
		a, tableA := p.table("a")
		b, tableB := p.table("b")
		db.Exec(t, fmt.Sprintf(`set role %s; create publication lapse_deletes with (publish = 'delete, truncate')`, p.roles.Owner))
		db.Exec(t, `alter publication lapse_deletes add table `+tableA+`, `+tableB)
		p.must(p.apply(p.admin, tableA, tableB))
		deleterA, deleterB := p.deleter(a), p.deleter(b)
		functions := func(deleter string) (deletion, survey string) {
			return one[string](p, `select oid::regprocedure::text from pg_proc where proowner = $1::regrole and proname like 'delete%'`, deleter),
				one[string](p, `select oid::regprocedure::text from pg_proc where proowner = $1::regrole and proname like 'survey%'`, deleter)
		}
		ownDeletion, _ := functions(deleterA)
		deletionB, surveyB := functions(deleterB)
		name, arguments, _ := strings.Cut(strings.TrimPrefix(deletionB, "lapse."), "(")
		db.Exec(t, fmt.Sprintf(`create schema evil;
			create function evil.run(command text) returns text language plpgsql security definer as $$
			begin execute command; return ''; exception when others then return sqlstate; end $$;
			alter function evil.run(text) owner to %s; grant usage on schema evil to public`, deleterA))

		for _, session := range []string{a, p.roles.Executor} {
			conn := db.ConnectAs(t, session)
			try := func(command string) (state string) {
				p.must(conn.QueryRow(t.Context(), `select evil.run($1)`, command).Scan(&state))
				return state
			}
			if state := try(`delete from ` + tableA + ` where id = 1`); state != "" {
				t.Fatalf("the owner's own right is missing: %s", state)
			}
			for _, command := range []string{
				`select from ` + tableB, `delete from ` + tableB, `update ` + tableB + ` set note = ''`, `truncate ` + tableB,
				`lock table ` + tableB, `drop table ` + tableB, `alter table ` + tableB + ` disable trigger all`,
				`create trigger x after delete on ` + tableB + ` execute function suppress_redundant_updates_trigger()`,
				`alter function ` + deletionB + ` security invoker`, `alter function ` + surveyB + ` security invoker`,
				`alter function ` + deletionB + ` owner to ` + deleterA, `drop function ` + deletionB,
				`grant execute on function ` + deletionB + ` to public`,
				`create or replace function lapse.` + name + `(` + strings.Replace(arguments, ")", ") returns lapse.outcome language sql as 'select null::lapse.outcome'", 1),
				`alter function ` + ownDeletion + ` rename to enter`,
				`select ` + name + ` from ` + tableB,
				`alter function lapse.enter security invoker`, `drop function lapse.beat`,
				`insert into lapse.shard (run, policy_id, version, leaf, cutoff) values (gen_random_uuid(), 1, 1, 1, now())`,
				`update lapse.shard set cutoff = now()`, `update lapse.run set cutoff = now()`,
				`insert into lapse.run (run, policy_id, version, cutoff) values (gen_random_uuid(), 1, 1, now())`,
				`insert into lapse.batch select * from lapse.batch`, `delete from lapse.batch`, `truncate lapse.batch_result`,
				`insert into lapse.batch_result values (gen_random_uuid(), 1, 1, '{}')`,
				`update lapse.gate set state = 'armed'`, `delete from lapse.gate`, `lock table lapse.gate`,
				`insert into lapse.policy_state (policy_id, version, state) values (1, 1, 'armed')`, `select from lapse.policy`,
				`update lapse.installation set audit_required = false`, `insert into lapse.halt (halted, reason) values (false, '')`,
				`insert into lapse.deleter values ('x', 1)`, `insert into lapse.clock (after_run, reason) values (1, '')`,
				`alter table lapse.batch disable trigger all`,
				`create table lapse.mine ()`, `create function lapse.mine() returns int language sql as 'select 1'`,
				`create type lapse.mine as enum ()`, `create operator lapse.=== (function = int4eq, leftarg = int, rightarg = int)`,
				`alter schema lapse owner to ` + deleterA,
				`select lapse.open_run(1, 1, gen_random_uuid(), '{}', '{}', '{}', null, null)`, `select lapse.lease(gen_random_uuid(), '')`,
				`select lapse.advance_arming(1)`, `select lapse.alarm('')`, `select lapse.doubt()`, `select lapse.beat(gen_random_uuid(), 1, 1, now(), null)`,
				`select lapse.record_publications()`, `select lapse.begin_publications()`, `select lapse.record_published('{}')`,
				`delete from lapse.published`, `insert into lapse.history (number, timeline, system_identifier, reason) values (2, 1, '1', '')`,
				`alter publication lapse_deletes drop table ` + tableB, `drop publication lapse_deletes`,
				`grant ` + b + ` to ` + deleterA, `grant ` + deleterB + ` to ` + a, `grant ` + p.roles.Owner + ` to ` + a,
				`grant ` + p.roles.Executor + ` to ` + a,
				`set role ` + b, `set role ` + p.roles.Owner, `set role ` + deleterB, `set session authorization ` + b,
				`create role mine`, `alter role ` + deleterA + ` login`, `alter role ` + deleterA + ` superuser`,
				`alter database ` + db.Name + ` set search_path = evil`,
				`copy ` + tableA + ` to program 'true'`, `copy ` + tableA + ` from '/etc/passwd'`,
			} {
				switch state := try(command); state {
				case "42501":
				case "":
					t.Errorf("%s, in a session of %s, was done", command, session)
				default:
					t.Errorf("%s, in a session of %s: SQLSTATE %s, want 42501", command, session, state)
				}
			}
			if state := try(`grant create on schema lapse to ` + deleterA); one[bool](p, `select has_schema_privilege($1, 'lapse', 'create')`, deleterA) {
				t.Errorf("the deleter gave itself the right to create in schema lapse: %q", state)
			}
		}
		if one[int](p, `select count(*) from `+tableB) != 60 {
			t.Error("rows of the other owner are gone")
		}
	})
}

// The fixed functions that a deleter may call check the session, not at whose rights they are called with.
func TestADeleterLentToItsOwnerCannotMakeEvidence(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		p := installed(t, db)
		a, table := p.table("a")
		p.must(p.apply(p.admin, table))
		db.Exec(t, fmt.Sprintf(`create schema evil;
			create function evil.run(command text) returns text language plpgsql security definer as $$
			begin execute command; return ''; exception when others then return sqlstate; end $$;
			alter function evil.run(text) owner to %s; grant usage on schema evil to public`, p.deleter(a)))
		for session, states := range map[string][]string{a: {"42501", "LP018"}, p.roles.Executor: {"LP002", "LP018"}} {
			conn := db.ConnectAs(t, session)
			for i, command := range []string{
				`select lapse.enter(null, null, 1, 1, 1, null)`, `select lapse.check_leaf(null, null, 'x')`,
				`select lapse.record(null, '\x00', null)`, `select lapse.leave(null, null, row(1, 1, 1, false, false, true, now(), 0, null)::lapse.portions, null, null, true, null)`,
			} {
				var state string
				p.must(conn.QueryRow(t.Context(), `select evil.run($1)`, command).Scan(&state))
				if want := states[min(i, 1)]; state != want {
					t.Errorf("%s in a session of %s: SQLSTATE %q, want %s", command, session, state, want)
				}
			}
		}
		if one[int](p, `select (select count(*) from lapse.batch) + (select count(*) from lapse.batch_result)`) != 0 {
			t.Error("there is evidence of nothing")
		}
	})
}
