package executor

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"lapse/executor/batch"
	"lapse/internal/pgtest"
	"lapse/planner/policyfile"
	"lapse/planner/resolve"
	"lapse/schemas"
)

// What a cursor WITH HOLD reads is evaluated at COMMIT, outside every function: as the login, not as the deleter.
func TestNothingOfAnybodysRunsAtCommitAsTheLogin(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 17, 18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 20, 10)
		arm(t, db, policies(policy("p", "public.sessions")))
		db.Exec(t, "create table public.held (who text); grant insert on public.held to public",
			`create function public.hold() returns int language plpgsql as $f$ begin insert into public.held values (current_user); return 1; end $f$`)
		plant(t, db, "begin execute 'declare c cursor with hold for select public.hold()'; exception when duplicate_cursor then null; end;")
		w := open(t, db, "p")
		_, err := w.batch(t, 10)
		if !errors.Is(err, batch.ErrCursorLeft) || grade(err, circumstances{limit: 10, own: true}) != StopPolicy {
			t.Errorf("got %v, want that a cursor was left, and a stopped policy", err)
		}
		if ran := one[string](t, db, "select coalesce(string_agg(who, ', '), 'nobody') from public.held"); ran != "nobody" {
			t.Errorf("the cursor's code ran as %s", ran)
		}
		if got := one[int](t, db, "select count(*) from sessions"); got != 30 {
			t.Errorf("%d rows are left, want all 30", got)
		}
	})
}

// Nothing locks a schema: its name may mean another one from one statement to the next.
func TestASchemaThatIsSwappedWithinABatchGetsNoLiveRowsOut(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		db.Exec(t, "grant create on database "+db.Name+" to "+appRole)
		owned(t, db, "create schema live", "create table live.t (id bigint primary key, at timestamptz, note text)",
			"create index on live.t (at, id)",
			"insert into live.t select g, now() - case when g <= 20 then interval '40 days' else interval '1 day' end from generate_series(1, 60) g",
			"create schema evil",
			"create view evil.t as select ('(0,' || g || ')')::tid as ctid, g::bigint as id, timestamptz '2000-01-01' as at from generate_series(21, 40) g",
			`create function evil.trg() returns trigger language plpgsql as $f$ begin delete from live_old.t where id = old.id; return old; end $f$`,
			"create trigger trg instead of delete on evil.t for each row execute function evil.trg()")
		arm(t, db, policies(policy("p", "live.t", "batch: 20")))
		db.Exec(t, "grant all on schema live, evil to public; create table public.sessions (note text); alter table public.sessions owner to "+appRole)
		// The swap comes from inside the batch, at the moment at which another session would do it.
		db.Exec(t, `create function public.swap() returns void language plpgsql as $f$
			begin
			  if current_user like 'lapse\_deleter\_%' and to_regclass('live_old.t') is null then
			    alter schema live rename to live_old; alter schema evil rename to live;
			  end if;
			end $f$;
			create function public.seems_harmless(int) returns boolean language plpgsql immutable as $f$ begin perform public.swap(); return true; end $f$;
			create index on live.t (note) where public.seems_harmless(1);`)
		w := open(t, db, "p")
		_, err := w.batch(t, 20)
		if state := schemas.StateOf(err); state != schemas.SQLStateUndefinedColumn { // a view has no tableoid
			t.Errorf("the batch got %v, want %s", err, schemas.SQLStateUndefinedColumn)
		}
		live := one[int](t, db, "select count(*) from "+one[string](t, db, "select coalesce(to_regclass('live_old.t'), to_regclass('live.t'))::text")+" where id > 20")
		if live != 40 {
			t.Errorf("%d of 40 live rows are left", live)
		}
	})
}

// PostgreSQL's own functions can run SQL too, and a default can lead to another table.
func TestWhatAChildsExpressionsCouldRunIsRefused(t *testing.T) {
	t.Parallel()
	for name, child := range map[string]string{
		"query_to_xml in a check": "create table child (session bigint references sessions on delete set null, check (query_to_xml('select public.evil()', true, false, '') is not null))",
		"ts_rewrite in a check":   "create table child (session bigint references sessions on delete set null, check (ts_rewrite('a'::tsquery, 'select t, s from public.words') is not null))",
		"to_json in a check":      "create table child (session bigint references sessions on delete set null, mood public.mood, check (to_json(mood) is not null))",
		"a composite's domain":    "create table child (session bigint references sessions on delete set null, doc jsonb, check ((jsonb_populate_record(null::public.comp, doc)).d is null))",
		"query_to_xml in a default": "create table child (cid int primary key, session bigint references sessions on delete set default); " +
			"alter table child alter session set default length(query_to_xml('select public.evil()', true, false, '')::text)",
		"an index of a table that a child refers to": "create table pk2 (id bigint primary key); create index on pk2 (id) where public.calm(1) = 1; insert into pk2 values (0); " +
			"create table child (cid int primary key, session bigint default 0 references sessions on delete set default, foreign key (session) references pk2)",
	} {
		t.Run(name, func(t *testing.T) {
			pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
				sessions(t, db, 20, 10)
				owner := db.NewRole(t, "stranger")
				arm(t, db, policies(policy("p", "public.sessions")))
				db.Exec(t, "grant create on schema public to "+owner+"; grant references on sessions to "+owner, "set role "+owner+`;
					create function public.evil() returns int language plpgsql as $f$ begin raise exception 'planted code ran'; end $f$;
					create function public.calm(int) returns int language plpgsql immutable as $f$ begin if session_user not like 'lapse%' then return 1; end if; return public.evil(); end $f$;
					create type public.mood as enum ('a'); create domain public.dom as text check (public.evil() = 1 or value is null);
					create type public.comp as (d public.dom); `+child)
				var problem policyfile.Problems
				_, err := resolve.Resolve(t.Context(), db.Connect(t), parsed(t, policies(policy("p", "public.sessions"))), nil)
				if !errors.As(err, &problem) || !strings.Contains(err.Error(), "would run") {
					t.Errorf("apply says %v", err)
				}
				w := open(t, db, "p")
				if _, err := w.batch(t, 10); schemas.StateOf(err) != schemas.SQLStateTriggers {
					t.Errorf("the batch got %v, want the refusal of what would run inside", err)
				}
			})
		})
	}
}

func parsed(t testing.TB, file string) policyfile.Policy {
	t.Helper()
	f, err := policyfile.Parse("policies.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	return f.Policies[0]
}

// A partition that somebody locks keeps neither the others nor the run from their end.
func TestAPartitionThatIsLockedKeepsNothingElse(t *testing.T) {
	t.Parallel()
	for _, locked := range []int{1, 2} {
		t.Run(fmt.Sprint(locked), func(t *testing.T) {
			pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
				parts(t, db, 100)
				arm(t, db, policies(policy("p", "public.visits", "batch: 20")))
				locker, err := db.Connect(t).Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := locker.Exec(t.Context(), fmt.Sprintf("lock table visits_%d in access exclusive mode", locked)); err != nil {
					t.Fatal(err)
				}
				s, err := newExecutor(t, db).Once(t.Context(), nil)
				if err != nil || !only(t, s).LeftBehind || only(t, s).Deleted != 100 {
					t.Errorf("Once did %+v, %v; want the other partition's 100 rows, and to hear that rows are left", s.Policies, err)
				}
				if err := locker.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
				db.Exec(t, "update lapse.shard set retry_at = now() where aside")
				once(t, newExecutor(t, db), "p")
				if got := one[int](t, db, "select count(*) from visits"); got != 0 {
					t.Errorf("%d rows are left", got)
				}
			})
		})
	}
}
