package executor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/executor/batch"
	"lapse/internal/pgtest"
	"lapse/planner/functions"
	"lapse/schemas"
)

// obstacle keeps some of the rows of sessions from being deleted: those whose id is a multiple of 137.
type obstacle struct {
	ddl    []string // after the rows are there
	policy []string // further keys
	state  string   // SQLSTATE
	says   string   // in the error of Once
}

// refuses is a trigger function of the application's that raises for those rows.
const refuses = `create function refuse() returns trigger language plpgsql as $$
	begin if old.id % 137 = 0 then raise exception 'row % of a person', old.id; end if; return old; end $$`

var obstacles = map[string]obstacle{
	"a foreign key": {
		ddl:   []string{"create table logins (session bigint references sessions)", "insert into logins select id from sessions where id % 137 = 0", "create index on logins (session)"},
		state: "23503", says: "constraint logins_session_fkey, table case_",
	},
	"a foreign key that restricts": {
		ddl: []string{
			"create table logins (session bigint references sessions on delete restrict)", "create index on logins (session)",
			"insert into logins select id from sessions where id % 137 = 0",
		},
		says: "logins_session_fkey",
	},
	"a deferred foreign key": {
		ddl: []string{
			"create table logins (session bigint references sessions deferrable initially deferred)", "create index on logins (session)",
			"insert into logins select id from sessions where id % 137 = 0",
		},
		state: "23503", says: "logins_session_fkey",
	},
	"a foreign key beyond a cascade": {
		ddl: []string{
			"create table logins (session bigint primary key references sessions on delete cascade)", "insert into logins select id from sessions",
			"create table steps (login bigint references logins)", "create index on steps (login)", "insert into steps select id from sessions where id % 137 = 0",
		},
		state: "23503", says: "steps_login_fkey",
	},
	"a check of rows that are set null": {
		ddl: []string{
			"create table logins (session bigint references sessions on delete set null, n bigint check (session is not null or n % 137 <> 0))",
			"create index on logins (session)", "insert into logins select id, id from sessions",
		},
		state: "23514", says: "logins_check",
	},
	"a column that is not null of rows that are set null": {
		ddl: []string{
			"create table logins (session bigint not null references sessions on delete set null)", "create index on logins (session)",
			"insert into logins select id from sessions where id % 137 = 0",
		},
		state: "23502", says: "column session, table case_",
	},
	"an exclusion constraint of rows that are set null": {
		ddl: []string{
			"create table logins (session bigint references sessions on delete set default, n int4range, exclude using gist (n with &&) where (session is null))",
			"create index on logins (session)", "insert into logins values (null, '[1,2)')",
			"insert into logins select id, case when id % 137 = 0 then int4range(1, 2) end from sessions",
		},
		state: "23P01", says: "logins_n_excl",
	},
	"a trigger that raises": {
		ddl:    []string{refuses, "create trigger refuse before delete on sessions for each row execute function refuse()"},
		policy: []string{"triggers: trusted"}, state: "P0001", says: "trigger refuse, table case_",
	},
	"a deferred trigger that raises": {
		ddl:    []string{refuses, "create constraint trigger refuse after delete on sessions deferrable initially deferred for each row execute function refuse()"},
		policy: []string{"triggers: trusted"}, state: "P0001", says: "trigger refuse, table case_",
	},
	"row security of a table that a trigger writes": {
		ddl: []string{
			"create table notes (id bigint)", "alter table notes enable row level security", "alter table notes force row level security",
			"create function note() returns trigger language plpgsql as $$ begin if old.id % 137 = 0 then insert into public.notes values (old.id); end if; return old; end $$",
			"create trigger note before delete on sessions for each row execute function note()",
		},
		policy: []string{"triggers: trusted"}, state: "42501", says: "trigger note, table case_",
	},
	"a trigger that names what it likes": {
		ddl: []string{
			`create function refuse() returns trigger language plpgsql as $$ begin if old.id % 137 = 0 then
			   execute format(E'do $x$ /* of a person:\nPL/pgSQL function person() line %s\nPL/pgSQL function person%s() line 1\n */ begin
			     raise exception ''of a person %s'' using column = ''person'', constraint = ''person'', table = ''sessions'', schema = %L, datatype = ''person''; end $x$', old.id, old.id, old.id, tg_table_schema);
			   end if; return old; end $$`,
			"create trigger refuse before delete on sessions for each row execute function refuse()",
		},
		policy: []string{"triggers: trusted"}, state: "P0001", says: "trigger refuse",
	},
	"an error of a trigger that is of no class": {
		ddl: []string{
			strings.Replace(refuses, "old.id;", "old.id using errcode = 'ZZ999';", 1),
			"create trigger refuse before delete on sessions for each row execute function refuse()",
		},
		policy: []string{"triggers: trusted"}, state: "ZZ999", says: ".refuse raises an error",
	},
	"a value that a trigger cannot compute": {
		ddl: []string{
			"create function refuse() returns trigger language plpgsql as $$ begin perform 1 / (old.id % 137); return old; end $$",
			"create trigger refuse before delete on sessions for each row execute function refuse()",
		},
		policy: []string{"triggers: trusted"}, state: "22012", says: "trigger refuse",
	},
	"an assertion of a trigger": {
		ddl: []string{
			"create function refuse() returns trigger language plpgsql as $$ begin assert old.id % 137 <> 0; return old; end $$",
			"create trigger refuse before delete on sessions for each row execute function refuse()",
		},
		policy: []string{"triggers: trusted"}, state: "P0004", says: "trigger refuse",
	},
}

// obstructed makes a schema for each obstacle, with 1,000 due rows, and arms a policy for each. 7 of the rows cannot be deleted.
func obstructed(t testing.TB, db *pgtest.DB, names []string) {
	t.Helper()
	entries := make([]string, len(names))
	for i, name := range names {
		o, schema := obstacles[name], fmt.Sprintf("case_%d", i)
		db.Exec(t, "create schema "+schema+" authorization "+appRole)
		ddl := append([]string{
			"set search_path = " + schema, "create table sessions (id bigint primary key, at timestamptz)", "create index on sessions (at, id)",
			"insert into sessions select g, now() - interval '40 days' - g * interval '1 second' from generate_series(1, 1000) g",
			"insert into sessions select g, now() - interval '20 days' from generate_series(1001, 1005) g",
		}, o.ddl...)
		for j := range ddl {
			ddl[j] = strings.ReplaceAll(ddl[j], "public.", schema+".")
		}
		owned(t, db, ddl...)
		entries[i] = policy(schema, schema+".sessions", append([]string{"batch: 1000", "every: 1 second", "pace: unlimited"}, o.policy...)...)
	}
	arm(t, db, policies(entries...))
}

// 7 of 1,000 rows cannot be deleted: 993 go, 7 are named, and the next run does not stumble over them.
//
//lapse:long
func TestOfAThousandRowsSevenThatResistAreNamedAndTheOthersGo(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		names := slices.Sorted(maps.Keys(obstacles))
		if strings.HasSuffix(t.Name(), "/pg14") {
			names = []string{"a deferred foreign key", "a trigger that raises", "row security of a table that a trigger writes"}
		}
		obstructed(t, db, names)
		e := newExecutor(t, db)
		pass := func(deleted, batches int64) {
			t.Helper()
			all := make([]schemas.PolicyName, len(names))
			for i := range all {
				all[i] = schemas.PolicyName(fmt.Sprintf("case_%d", i))
			}
			s, _ := e.Once(t.Context(), all)
			for i, name := range names {
				o, p := obstacles[name], s.Policies[slices.IndexFunc(s.Policies, func(p PolicySummary) bool { return p.Policy == all[i] })]
				if p.Outcome != Resisted || p.Deleted != deleted || p.Batches > batches {
					t.Errorf("%s: Once did %+v; want that %d rows went in %d batches, and 7 resist", name, p, deleted, batches)
				}
				if !strings.Contains(p.Error, "7 rows in quarantine") || !strings.Contains(p.Error, o.says) || !strings.Contains(p.Error, o.state) || strings.Contains(p.Error, "person") {
					t.Errorf("%s: it says %q, want %s %s", name, p.Error, o.state, o.says)
				}
				if got := one[int](t, db, "select count(*) from lapse.quarantine q where to_jsonb(q)::text like '%person%'"); got != 0 {
					t.Errorf("%s: %d rows in quarantine have what an error said", name, got)
				}
				const seven = "137 274 411 548 685 822 959"
				if got := one[string](t, db, "select string_agg(key[1], ' ' order by key[1]::int) from lapse.quarantine where leaf = ($1 || '.sessions')::regclass", string(all[i])); got != seven {
					t.Errorf("%s: in quarantine are %s", name, got)
				}
				if got := one[string](t, db, "select string_agg(id::text, ' ' order by id) from "+string(all[i])+".sessions where id <= 1000"); got != seven {
					t.Errorf("%s: left are %s", name, got)
				}
			}
			balanced(t, db)
		}
		// Twice the logarithm of the rows between two of them, for each, and the batch that steps over it.
		pass(993, 8*2*10)
		db.Exec(t, "update lapse.quarantine set retry_at = retry_at + interval '1 hour'") // two passes may take longer than the pause of a minute
		pass(0, 3)
		if got := one[string](t, db, "select max(tries) || ' ' || bool_and(retry_at - tried_at between '3659 seconds' and '3661 seconds') from lapse.quarantine"); got != "1 true" {
			t.Errorf("before their time, and the first pause: %s", got)
		}
		// At their time they are tried again, with a longer pause.
		db.Exec(t, "update lapse.quarantine set retry_at = now()")
		pass(0, 8*2*3)
		if got := one[string](t, db, "select min(tries) || ' ' || bool_and(retry_at - tried_at between '119 seconds' and '121 seconds') from lapse.quarantine"); got != "2 true" {
			t.Errorf("the second pause: %s, want twice the first", got)
		}
	})
}

// balanced checks what the auditor compares: each batch on record has a result if it found rows, and what it claims to have
// deleted is what went.
func balanced(t testing.TB, db *pgtest.DB) {
	t.Helper()
	if got := one[int](t, db, `select count(*) from lapse.batch b where not exists (select from lapse.batch_result r where r.batch = b.batch)`); got != 0 {
		t.Errorf("%d batches have no result", got)
	}
	if got := one[string](t, db, `
		select format('%s %s', sum(r.deleted), coalesce(sum((r.by_relation ->> b.target::text)::bigint), 0)) from lapse.batch_result r join lapse.batch b using (batch)
		having sum(r.deleted) <> coalesce(sum((r.by_relation ->> b.target::text)::bigint), 0) union all select '' limit 1`); got != "" {
		t.Errorf("claimed and counted are %s", got)
	}
}

// parts makes a partitioned table of two partitions with due rows in both, the first ones with the oldest.
func parts(t testing.TB, db *pgtest.DB, due int) {
	t.Helper()
	owned(t, db, "create table visits (id bigint, at timestamptz, part int, primary key (id, part)) partition by list (part)",
		"create table visits_1 partition of visits for values in (1)", "create table visits_2 partition of visits for values in (2)",
		"create index on visits (at, id)",
		fmt.Sprintf("insert into visits select g, now() - interval '40 days' - g * interval '1 second', p from generate_series(1, %d) g, generate_series(1, 2) p", due))
}

// A row that resists holds up no other, of its partition or of another. It leaves the quarantine when it is deleted, when it is gone, when
// it is not due any more, and with its partition.
func TestARowLeavesTheQuarantineByItself(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		parts(t, db, 100)
		owned(t, db, "create table keeps (id bigint, part int, foreign key (id, part) references visits)", "create index on keeps (id, part)",
			"insert into keeps select g, p from generate_series(10, 50, 10) g, generate_series(1, 2) p")
		arm(t, db, policies(policy("p", "public.visits", "batch: 64", "every: 1 second")))
		e := newExecutor(t, db)
		entries := func() string {
			return one[string](t, db, "select coalesce(string_agg(key[1] || '/' || key[2], ' ' order by key[1], key[2]), '') from lapse.quarantine")
		}
		for _, c := range []struct {
			before     string // the application's
			left, rest string
		}{
			{"", "10/1 10/2 20/1 20/2 30/1 30/2 40/1 40/2 50/1 50/2", "10"},
			{"delete from keeps where id = 10", "20/1 20/2 30/1 30/2 40/1 40/2 50/1 50/2", "8"},                         // deleted
			{"delete from keeps where id = 20; delete from visits where id = 20", "30/1 30/2 40/1 40/2 50/1 50/2", "6"}, // gone
			{"update visits set at = now() where id = 30", "40/1 40/2 50/1 50/2", "6"},                                  // not due
			{"alter table keeps drop constraint keeps_id_part_fkey; alter table visits detach partition visits_2; update visits_1 set at = now() where id = 40", "50/1", "3"},
		} {
			db.Exec(t, "update lapse.quarantine set retry_at = now()")
			if c.before != "" {
				owned(t, db, c.before)
			}
			if strings.Contains(c.before, "detach") {
				owned(t, db, "alter table keeps add foreign key (id, part) references visits not valid")
			}
			s, err := e.Once(t.Context(), []schemas.PolicyName{"p"})
			if only(t, s).Outcome != Resisted {
				t.Errorf("after %q: %+v, %v", c.before, only(t, s), err)
			}
			if got := entries(); got != c.left {
				t.Errorf("after %q: %s are in quarantine, want %s", c.before, got, c.left)
			}
			if got := one[string](t, db, "select count(*)::text from visits"); got != c.rest {
				t.Errorf("after %q: %s rows are left, want %s", c.before, got, c.rest)
			}
		}
		owned(t, db, "delete from keeps")
		db.Exec(t, "update lapse.quarantine set retry_at = now()")
		if s := once(t, e, "p"); only(t, s).Outcome != Finished || entries() != "" {
			t.Errorf("with nothing in the way: %+v, and %s in quarantine", only(t, s), entries())
		}
		// What the auditor is told of it: numbers of rows.
		if in, out := one[int](t, db, "select sum(entered) from lapse.quarantine_change"), one[int](t, db, "select sum(left_it) from lapse.quarantine_change"); in != 10 || out != 10 {
			t.Errorf("%d rows are said to have come into the quarantine, and %d to have left it, of 10", in, out)
		}
	})
}

// What is said of a quarantined row of a partition that is gone has no name of it, and a run takes it out.
func TestTheQuarantineOfADroppedPartitionIsTakenOut(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		parts(t, db, 3)
		arm(t, db, policies(policy("p", "public.visits", "every: 1 second")))
		db.Exec(t, `insert into lapse.quarantine (policy_id, leaf, digest, key, sqlstate, retry_at) select 1, 'visits_2'::regclass, sha256('7'), '{7,2}', '23503', now()`)
		owned(t, db, "drop table visits_2")
		db.Exec(t, "select lapse.restate()")
		if s := once(t, newExecutor(t, db), "p"); only(t, s).Outcome != Finished {
			t.Errorf("%+v", only(t, s))
		}
		if got := one[string](t, db, `select count(*) || ' left, ' || (select string_agg(concat_ws(' ', c.entered, c.left_it, c.name), ', ' order by c.number) from lapse.quarantine_change c)
			from lapse.quarantine`); got != "0 left, 1 0 public.visits_2, 0 1" {
			t.Error(got)
		}
	})
}

// Where most rows resist the cause is the schema: the policy stops, and its quarantine is no copy of the table.
func TestAPolicyStopsWhereMostOfItsRowsResist(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 400, 5)
		owned(t, db, "create table kept (upto bigint)", "insert into kept values (300)",
			strings.Replace(refuses, "old.id % 137 = 0", "old.id <= (select k.upto from public.kept k)", 1), "create trigger refuse before delete on sessions for each row execute function refuse()")
		arm(t, db, policies(policy("p", "public.sessions", "pace: unlimited", "triggers: trusted")))
		e := newExecutor(t, db)
		s, err := e.Once(t.Context(), nil)
		if p := only(t, s); p.Outcome != Stopped || p.Deleted != 100 || schemas.SQLStateTooMany != serverState(err) ||
			!strings.Contains(err.Error(), "101 of the 201 rows that this run tried could not be deleted") || !strings.Contains(err.Error(), "lapse quarantine") {
			t.Errorf("Once did %+v, %v; want a policy that is stopped, and how it goes on", p, err)
		}
		if got := one[int](t, db, "select count(*) from lapse.quarantine"); got != 100 {
			t.Errorf("%d rows are in quarantine", got)
		}
		owned(t, db, "update kept set upto = 0")
		db.Exec(t, "update lapse.quarantine set retry_at = now()")
		_, _ = e.Once(t.Context(), []schemas.PolicyName{"p"}) // the rest of the run, which began before they were to be tried again
		if s := once(t, e, "p"); only(t, s).Outcome != Finished {
			t.Errorf("with nothing in the way: %+v", only(t, s))
		}
		if got := one[string](t, db, "select (select count(*) from sessions) || ' ' || (select count(*) from lapse.quarantine)"); got != "5 0" {
			t.Errorf("rows and entries left: %s, want 5 0", got)
		}
	})
}

func serverState(err error) string {
	var server *ServerError
	if errors.As(err, &server) {
		return server.SQLState
	}
	return ""
}

// Nobody enters a row that could be deleted, or more than one: not by the deletion function, which tries the row first, and not by the functions after it.
func TestAStolenLoginEntersNothingIntoTheQuarantine(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 20, 5)
		owned(t, db, "create table logins (session bigint references sessions)", "create index on logins (session)")
		arm(t, db, policies(policy("p", "public.sessions", "batch: 10")))
		w := open(t, db, "p")
		entries := func() int { return one[int](t, db, "select count(*) from lapse.quarantine") }
		_, done, err := w.Delete(t.Context(), w.a, testKey, batch.Order{Limit: 1, Shape: functions.ShapePick, StepOver: true})
		if err != nil || done.Deleted != 1 || entries() != 0 {
			t.Errorf("a row that does not resist: %+v, %v, and %d entries; want that it goes", done, err, entries())
		}
		owned(t, db, "insert into logins select id from sessions")
		if _, _, err = w.Delete(t.Context(), w.a, testKey, batch.Order{Limit: 10, Shape: functions.ShapePick, StepOver: true}); schemas.StateOf(err) != schemas.SQLStateNotEntered {
			t.Errorf("ten rows at once: %v, want a refusal", err)
		}
		for _, sql := range []string{
			"select lapse.resist(null::lapse.claim, null::lapse.work, '{1}', '23503', null, null, null, null, null)",
			"insert into lapse.quarantine (policy_id, leaf, digest, key, sqlstate, retry_at) values (1, 1, sha256(''), '{1}', '23503', 'infinity')",
			"update lapse.quarantine set retry_at = 'infinity'",
			"select lapse.quarantined(1, 1, 1)", // it would show keys
		} {
			if _, err := w.Control.Exec(t.Context(), sql); schemas.StateOf(err) != schemas.SQLStateInsufficientPrivilege {
				t.Errorf("%s: %v", sql, err)
			}
		}
		if entries() != 0 {
			t.Errorf("%d rows are in quarantine", entries())
		}
	})
}

// A row with a locked child is left, and is not in quarantine: the others go, and the process that has the lock is known.
func TestARowWithALockedChildIsLeft(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 20, 5)
		owned(t, db, "create table logins (session bigint references sessions on delete cascade)", "create index on logins (session)",
			"insert into logins select id from sessions where id = 7")
		arm(t, db, policies(policy("p", "public.sessions", "batch: 10")))
		err := pgx.BeginFunc(t.Context(), db.Connect(t), func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "select from logins for update"); err != nil {
				return err
			}
			s, err := newExecutor(t, db).Once(t.Context(), []schemas.PolicyName{"p"})
			if p := only(t, s); err != nil || p.Outcome != Finished || !p.LeftBehind || p.Deleted != 19 {
				t.Errorf("Once did %+v, %v; want that the other 19 go", p, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := one[int](t, db, "select count(*) from lapse.quarantine"); got != 0 {
			t.Errorf("%d rows are in quarantine", got)
		}
		if s := once(t, newExecutor(t, db), "p"); only(t, s).Deleted != 1 || only(t, s).Outcome != Finished {
			t.Errorf("with the lock gone: %+v", only(t, s))
		}
	})
}
