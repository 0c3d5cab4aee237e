package executor

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"lapse/executor/batch"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// rewrite changes the text of a function as a superuser, who may do anything: the tests here ask what comes of it.
func rewrite(function, from, to string) string {
	return fmt.Sprintf(`do $do$
		declare
		  before text := pg_get_functiondef('%s'::regproc);
		begin
		  if position($t$%[2]s$t$ in before) = 0 then raise exception 'there is nothing to replace'; end if;
		  execute replace(before, $t$%[2]s$t$, $t$%[3]s$t$);
		end $do$`, function, from, to)
}

// schemaInPlace renames the schema, with the functions as they were made, and puts another in its place with copies of them.
const schemaInPlace = `do $do$
	declare
	  of record;
	begin
	  set local check_function_bodies = off;
	  alter schema lapse rename to former;
	  create schema lapse;
	  grant usage on schema lapse to public;
	  for of in select c.relname, c.relkind from pg_class c where c.relnamespace = 'former'::regnamespace and c.relkind in ('r', 'v', 'c')
	      order by c.relkind loop
	    execute format('alter %s former.%I set schema lapse', case of.relkind when 'c' then 'type' when 'v' then 'view' else 'table' end, of.relname);
	  end loop;
	  for of in select p.oid from pg_proc p where p.pronamespace = 'former'::regnamespace loop
	    execute replace(pg_get_functiondef(of.oid), 'former.', 'lapse.');
	  end loop;
	end $do$`

// A function that lost its condition, or lends its rights, deletes nothing.
func TestAFunctionThatIsNotOursStopsThePolicy(t *testing.T) {
	t.Parallel()
	const signature = "lapse.delete_1_1(lapse.claim, bytea, lapse.work)"
	for name, change := range map[string]string{
		"the condition stripped":       rewrite("lapse.delete_1_1", ", false)';", ", false) is not null';"),
		"the bound widened":            rewrite("lapse.delete_1_1", "interval '30 days';", "interval '30 days' + interval '1 year';"),
		"run as the caller":            "alter function " + signature + " security invoker",
		"another owner":                "alter function " + signature + " owner to " + appRole,
		"another search_path":          "alter function " + signature + " set search_path = public, pg_catalog",
		"a setting taken out":          "alter function " + signature + " reset row_security",
		"a setting more":               "alter function " + signature + " set enable_seqscan = on",
		"strict":                       "alter function " + signature + " strict",
		"stable":                       "alter function " + signature + " stable",
		"for everybody to call":        "grant execute on function " + signature + " to public",
		"for the table's owner":        "grant execute on function " + signature + " to " + appRole,
		"a second of its name":         "create function lapse.delete_1_1(lapse.claim, bytea, lapse.work, int) returns int language sql as 'select 1'",
		"look that does not look":      rewrite("lapse.check_leaf", "found_so := lapse.familiar", "return; found_so := lapse.familiar"),
		"enter that lets everybody in": rewrite("lapse.enter", "clock_timestamp() then", "clock_timestamp() and false then"),
		"record that writes nothing":   rewrite("lapse.record", "return lapse.tally_of(", "return null; return lapse.tally_of("),
		"leave that does not count":    rewrite("lapse.leave", "went is distinct from portions.deleted", "false"),
		"familiar with everything":     rewrite("lapse.familiar", "if e.signature = ", "if true or e.signature = "),
		"intruders that sees nothing":  rewrite("lapse.intruders", "return query", "return; return query"),
		"all in another schema":        schemaInPlace,
		"enter for everybody":          "grant execute on function lapse.enter(lapse.claim, lapse.work, int, int, int, bytea) to public",
	} {
		t.Run(name, func(t *testing.T) {
			pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
				sessions(t, db, 60, 30)
				arm(t, db, policies(policy("p", "public.sessions", "batch: 20")))
				// Between batches: the first one ran in the function as it was made.
				w := open(t, db, "p")
				if _, err := w.batch(t, 20); err != nil {
					t.Fatal(err)
				}
				db.Exec(t, change)
				_, err := w.batch(t, 20)
				var tampered *batch.TamperedError
				if !errors.As(err, &tampered) || grade(err, circumstances{limit: 20, own: true}) != StopPolicy {
					t.Errorf("got %v, want a refusal that stops the policy", err)
				}
				// And a process that knows nothing of the one before.
				if _, err := w.Release(t.Context(), w.a.Lease); err != nil {
					t.Fatal(err)
				}
				s, err := newExecutor(t, db).Once(t.Context(), nil)
				if !errors.As(err, &tampered) || only(t, s).Outcome != Stopped || !strings.Contains(err.Error(), "lapse apply") {
					t.Errorf("got %+v, %v; want a stopped policy and what to do", s.Policies, err)
				}
				if got := one[int](t, db, "select count(*) from sessions"); got != 70 {
					t.Errorf("%d rows are left, want 70: nothing may go by that function", got)
				}
			})
		})
	}
}

// VACUUM FULL moves the catalog's rows up, with their transactions: where one of ours was there is another of ours.
func TestAChangedFunctionIsNoticedAfterVacuumFull(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 60, 30)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 20")))
		db.Exec(t, "vacuum full pg_proc")
		w := open(t, db, "p")
		if _, err := w.batch(t, 20); err != nil {
			t.Fatal(err)
		}
		// Its place takes lapse.survey_1_1, which was made with it; those of the batch's other functions stay.
		db.Exec(t, "alter function lapse.find_1_1(lapse.claim, lapse.work, lapse.place) volatile")
		db.Exec(t, "vacuum full pg_proc")
		_, err := w.batch(t, 20)
		var tampered *batch.TamperedError
		if !errors.As(err, &tampered) {
			t.Errorf("got %v, want a refusal", err)
		}
		if got := one[int](t, db, "select count(*) from sessions"); got != 70 {
			t.Errorf("%d rows are left, want 70", got)
		}
	})
}

// `run --now` waited forever: a function that is not there may be one that `lapse apply` is about to make.
func TestADeletionFunctionThatStaysAwayStopsThePolicy(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 60, 30)
		arm(t, db, policies(policy("p", "public.sessions")))
		db.Exec(t, "drop function lapse.delete_1_1")
		s, err := newExecutor(t, db).Once(t.Context(), nil)
		var tampered *batch.TamperedError
		if !errors.As(err, &tampered) || only(t, s).Outcome != Stopped || !strings.Contains(err.Error(), "lapse.delete_1_1 is not there") {
			t.Errorf("got %+v, %v; want a stopped policy and what is missing", s.Policies, err)
		}
	})
}

// plant gets code of somebody else's into every batch: PostgreSQL evaluates an index's condition while it plans. It runs
// as the deleter. The functions belong to a superuser, whom lapse.intruders lets through: that is how a test gets past it.
func plant(t testing.TB, db *pgtest.DB, body string) {
	t.Helper()
	db.Exec(t, `
		create table public.planted (who text, session text, at timestamptz default clock_timestamp());
		grant insert on public.planted to public;
		create function public.act() returns void language plpgsql as $f$
		begin
		  if current_user like 'lapse\_deleter\_%' and current_setting('transaction_read_only') = 'off' then -- in a batch, and not in a look
		    insert into public.planted values (current_user, session_user);
		    `+body+`
		  end if;
		end $f$;
		create function public.seems_harmless(int) returns boolean language plpgsql immutable as $f$
		begin perform public.act(); return true; end $f$;
		create index planted_note on public.sessions (note) where public.seems_harmless(1)`)
}

// ran says how often the planted code ran, and that it did.
func ran(t testing.TB, db *pgtest.DB) int {
	t.Helper()
	n := one[int](t, db, "select count(*) from public.planted")
	if n == 0 {
		t.Error("the planted code never ran: the test shows nothing")
	}
	return n
}

func TestAFunctionThatIsChangedWithinABatchRollsItBack(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"to run as the caller":   "alter function lapse.delete_1_1(lapse.claim, bytea, lapse.work) security invoker;",
		"to another path":        "alter function lapse.delete_1_1(lapse.claim, bytea, lapse.work) set search_path = public;",
		"and back again":         "alter function lapse.delete_1_1(lapse.claim, bytea, lapse.work) strict; alter function lapse.delete_1_1(lapse.claim, bytea, lapse.work) called on null input;",
		"for others to call it":  "grant execute on function lapse.delete_1_1(lapse.claim, bytea, lapse.work) to app;",
		"to write in what finds": "alter function lapse.find_1_1(lapse.claim, lapse.work, lapse.place) volatile;",
		"for others to find":     "grant execute on function lapse.find_1_1(lapse.claim, lapse.work, lapse.place) to app;",
	} {
		t.Run(name, func(t *testing.T) {
			pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
				sessions(t, db, 20, 10)
				arm(t, db, policies(policy("p", "public.sessions")))
				plant(t, db, "raise notice 'x'; if true then "+body+" end if;")
				w := open(t, db, "p")
				_, err := w.batch(t, 10)
				if !errors.Is(err, batch.ErrFunctionsChanged) || grade(err, circumstances{limit: 10, own: true}) != StopPolicy {
					t.Errorf("got %v, want that the functions were changed", err)
				}
				if got := one[int](t, db, "select count(*) from sessions"); got != 30 {
					t.Errorf("%d rows are left, want all 30", got)
				}
				if !one[bool](t, db, "select prosecdef from pg_proc where proname = 'delete_1_1'") {
					t.Error("the change is still there")
				}
			})
		})
	}
}

// What code inside a batch does to the session lasts beyond its transaction. The next batch must not run in it.
func TestWhatABatchDoesToItsSessionIsGoneBeforeTheNext(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 60, 10)
		db.Exec(t, `
			create schema evil; grant usage on schema evil to public;
			create table evil.called (what text, who text);
			grant insert on evil.called to public;
			create function evil.pg_current_xact_id() returns xid8 language plpgsql as $f$
			begin insert into evil.called values ('pg_current_xact_id', current_user); return pg_catalog.pg_current_xact_id(); end $f$;
			create function evil.now() returns timestamptz language plpgsql as $f$
			begin insert into evil.called values ('now', current_user); return pg_catalog.now(); end $f$;
			create function evil.equal(name, name) returns boolean language plpgsql as $f$
			begin insert into evil.called values ('=', current_user); return $1 operator(pg_catalog.=) $2; end $f$;
			create operator evil.= (leftarg = name, rightarg = name, function = evil.equal);
			create function evil.coalesced(text, text) returns text language plpgsql as $f$
			begin insert into evil.called values ('||', current_user); return pg_catalog.textcat($1, $2); end $f$;
			create operator evil.|| (leftarg = text, rightarg = text, function = evil.coalesced)`)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 20")))
		plant(t, db, `
			perform set_config('search_path', 'evil, pg_catalog', false);
			perform set_config('timezone', 'Pacific/Kiritimati', false);
			perform set_config('session_replication_role', 'origin', false) where false;
			begin execute 'prepare stmtcache_1 as select 1'; exception when duplicate_prepared_statement then null; end;
			begin execute 'create temp table pg_proc (proname name)'; exception when others then null; end;`)
		w := open(t, db, "p")
		for i := range 3 {
			if done, err := w.batch(t, 20); err != nil || done.Deleted != 20 {
				t.Fatalf("batch %d did %+v, %v; want 20 rows", i, done, err)
			}
		}
		ran(t, db)
		if got := one[string](t, db, "select coalesce(string_agg(distinct what || ' as ' || who, ', '), 'nothing') from evil.called"); got != "nothing" {
			t.Errorf("code that a batch left in its session's way was called: %s", got)
		}
		var zone string
		if err := w.Control.QueryRow(t.Context(), "select current_setting('timezone')").Scan(&zone); err != nil || zone == "Pacific/Kiritimati" {
			t.Errorf("the session that takes leases is in zone %s, %v", zone, err)
		}
	})
}

// The text of the DELETE is put together after the pick, in which the table's code may have run.
func TestCodeInsideThePickCannotWriteTheDelete(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 20, 30)
		db.Exec(t, `
			create schema evil; grant usage on schema evil to public;
			create function evil.joined(text, text) returns text language sql as
			  $f$ select pg_catalog.textcat($1, case when $2 like '%t.ctid = any%' then ' as t where t.id between 21 and 20 + cardinality($3)'
			                                         else $2 end) $f$;
			create operator evil.|| (leftarg = text, rightarg = text, function = evil.joined);
			create function evil.less(int, int) returns boolean language sql as 'select false';
			create operator evil.< (leftarg = int, rightarg = int, function = evil.less)`)
		arm(t, db, policies(policy("p", "public.sessions", "batch: 10")))
		plant(t, db, `perform set_config('search_path', 'evil, pg_catalog', false), set_config('timezone', 'Pacific/Kiritimati', false);`)
		w := open(t, db, "p")
		for range 3 {
			if _, err := w.batch(t, 10); err != nil {
				t.Fatal(err)
			}
		}
		ran(t, db)
		if live := one[int](t, db, "select count(*) from sessions where id > 20"); live != 30 {
			t.Errorf("%d of 30 live rows are left", live)
		}
	})
}

// A table's owner whose code runs inside a batch is the deleter there, and can do no more than the owner could anyway.
func TestCodeInsideABatchMayOnlyWhatTheTablesOwnerMay(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"write the ledger":              "insert into lapse.batch_result values (gen_random_uuid(), 1, 1, '{}');",
		"move a shard":                  "update lapse.shard set done = true;",
		"open a gate":                   "update lapse.gate set state = 'armed';",
		"read the catalog":              "perform from lapse.policy;",
		"create in the schema":          "create function lapse.mine() returns int language sql as 'select 1';",
		"replace a function":            "create or replace function lapse.delete_1_1(claim lapse.claim, mac bytea, work lapse.work) returns lapse.outcome language sql as 'select null::lapse.outcome';",
		"be somebody else":              "perform set_config('role', 'lapse_owner', true);",
		"enter once more":               "perform lapse.enter(null, (1, 1, '', 1, null, false, false, null, null)::lapse.work, 1, 1, 5000, null);",
		"delete what another role owns": "delete from public.others;",
		"change another's function":     "alter function lapse.delete_2_1(lapse.claim, bytea, lapse.work) security invoker;",
		"lend itself to another":        "execute 'grant lapse_deleter_' || (select oid from pg_roles where rolname = 'app') || ' to app';",
	} {
		t.Run(name, func(t *testing.T) {
			pgtest.On(t, []int{15}, func(t *testing.T, db *pgtest.DB) {
				other := db.NewRole(t, "other")
				db.Exec(t, "grant create on schema public to "+other+"; set role "+other+
					"; create table others (id bigint primary key, at timestamptz); insert into others values (1, now())")
				sessions(t, db, 20, 10)
				arm(t, db, policies(policy("p", "public.sessions"), policy("q", "public.others")))
				plant(t, db, body)
				w := open(t, db, "p")
				_, err := w.batch(t, 10)
				want := schemas.SQLStateInsufficientPrivilege
				if name == "enter once more" {
					want = schemas.SQLStateGate
				}
				if state := schemas.StateOf(err); state != want {
					t.Errorf("got %q (%v), want %s", state, err, want)
				}
				if got := one[int](t, db, "select count(*) from others"); got != 1 {
					t.Error("another owner's row is gone")
				}
			})
		})
	}
}
