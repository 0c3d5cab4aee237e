package executor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"lapse/executor/batch"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// schemaChange is what somebody does to a table between two batches of a run, and what becomes of its policy.
type schemaChange struct {
	ddl   string // with the application's rights, or a superuser's after "reset role;"
	cause Cause  // that stops the policy; "": nothing does
	says  string
	left  string // rows that are due and stay, where the policy is not stopped
}

// schemaChanges are made in a schema of their own each, to table sessions with 100 due rows, or to visits, which has 50 in each of two partitions.
var schemaChanges = map[string]schemaChange{
	"a column is dropped":       {"alter table sessions drop column at", CauseColumns, "`lapse apply`", ""},
	"a column is renamed":       {"alter table sessions rename column at to since", CauseColumns, "`lapse apply`", ""},
	"a type is changed":         {"alter table sessions alter at type timestamp", CauseColumns, "`lapse apply`", ""},
	"a key's column is renamed": {"alter table sessions rename id to number", CauseColumns, "`lapse apply`", ""},
	"another column is dropped": {"alter table sessions drop note", "", "", "0"},
	"a column is added":         {"alter table sessions add more text default 'x'", "", "", "0"},
	"the table is renamed":      {"alter table sessions rename to visits_old", CauseTable, "sessions is gone, renamed or another table", ""},
	"the table is dropped":      {"drop table sessions", CauseTable, "`lapse apply`", ""},
	"another has its name":      {"alter table sessions rename to away; create table sessions (id bigint primary key, at timestamptz); insert into sessions values (1, '2000-01-01')", CauseTable, "another table", ""},
	"the schema is renamed":     {"reset role; alter schema %s rename to %[1]s_old", CauseTable, "is gone, renamed or another table", ""},
	"the owner is another":      {"reset role; create role %s_other; alter table sessions owner to %[1]s_other", CausePermission, "42501", ""},
	"row security is forced":    {"alter table sessions enable row level security; alter table sessions force row level security", CauseRows, "bypassrls", ""},
	"a trigger is added": {
		"create function f() returns trigger language plpgsql as 'begin return null@end'; create trigger t before delete on sessions for each row execute function f()",
		CauseCode, "trigger t on", "",
	},
	"a rule is added":                   {"create rule r as on delete to sessions do instead nothing", CauseCode, "rule r", ""},
	"a foreign key that cascades":       {"create table notes (session bigint references sessions on delete cascade)", CauseTable, "apply saw []", ""},
	"a foreign key that nothing is in":  {"create table notes (session bigint references sessions)", "", "", "0"},
	"an index is dropped":               {"drop index sessions_at_id_idx", "", "", "0"},
	"the table is rewritten":            {"reset role; set search_path = %s; vacuum full sessions", "", "", "0"},
	"the table is emptied":              {"truncate sessions", "", "", "0"},
	"of visits a partition is detached": {"alter table visits detach partition visits_2", "", "", "0"},
	"of visits a partition is dropped":  {"drop table visits_2", "", "", "0"},
	"of visits a partition is attached": {"create table visits_3 (id bigint, at timestamptz, part int, primary key (id, part)); insert into visits_3 values (1, '2000-01-01', 3); alter table visits attach partition visits_3 for values in (3)", "", "", "1"},
	"of visits a partition is renamed":  {"alter table visits_2 rename to visits_two", "", "", "0"},
	"of visits a partition has a trigger": {
		"create function f() returns trigger language plpgsql as 'begin return null@end'; create trigger t before delete on visits_2 for each row execute function f()",
		CauseCode, "trigger t on", "",
	},
}

// Each change ends in one of two ways: the run goes on, or its policy stops, and says why and what to do. The others do not notice.
func TestASchemaChangeUnderARunIsGoneOnWithOrStopsItsPolicyByName(t *testing.T) {
	t.Parallel()
	names := slices.Sorted(maps.Keys(schemaChanges))
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		entries := []string{policy("others", "public.others", "batch: 10", "pace: unlimited")}
		owned(t, db, "create table others (id bigint primary key, at timestamptz)", "create index on others (at, id)",
			"insert into others select g, now() - interval '31 days' from generate_series(1, 100) g")
		table := map[string]string{}
		for i, name := range names {
			schema := fmt.Sprintf("%s_%d", db.Name, i)
			db.Exec(t, "create schema "+schema+" authorization "+appRole)
			if table[name] = schema + ".sessions"; strings.HasPrefix(name, "of visits") {
				table[name] = schema + ".visits"
				owned(t, db, "set search_path = "+schema, "create table visits (id bigint, at timestamptz, part int, primary key (id, part)) partition by list (part)",
					"create table visits_1 partition of visits for values in (1)", "create table visits_2 partition of visits for values in (2)",
					"create index on visits (at, id, part)", "insert into visits select g, now() - interval '40 days', 1 + g % 2 from generate_series(1, 100) g")
			} else {
				owned(t, db, "set search_path = "+schema, "create table sessions (id bigint primary key, at timestamptz, note text)", "create index on sessions (at, id)",
					"insert into sessions select g, now() - interval '40 days' from generate_series(1, 100) g")
			}
			entries = append(entries, policy(fmt.Sprintf("case_%d", i), table[name], "batch: 10", "pace: unlimited"))
		}
		arm(t, db, policies(entries...))
		changed := map[string]bool{}
		e := newExecutor(t, db, func(c *Config) {
			c.Progress = func(p Progress) {
				var i int
				if n, _ := fmt.Sscanf(string(p.Policy), "case_%d", &i); n == 0 || changed[names[i]] {
					return
				}
				changed[names[i]] = true
				schema := fmt.Sprintf("%s_%d", db.Name, i)
				ddl := strings.ReplaceAll(strings.ReplaceAll(schemaChanges[names[i]].ddl, "%s", schema), "%[1]s", schema)
				conn := db.Connect(t)
				for _, sql := range append([]string{"set role " + appRole, "set search_path = " + schema}, strings.Split(ddl, "; ")...) {
					if _, err := conn.Exec(context.WithoutCancel(t.Context()), strings.ReplaceAll(sql, "@", "; ")); err != nil {
						t.Errorf("%s: %s: %v", names[i], sql, err)
					}
				}
				_ = conn.Close(context.WithoutCancel(t.Context()))
			}
		})
		s, _ := e.Once(t.Context(), nil)
		for i, name := range names {
			c, p := schemaChanges[name], s.Policies[slices.IndexFunc(s.Policies, func(p PolicySummary) bool { return string(p.Policy) == fmt.Sprintf("case_%d", i) })]
			m := e.status[slices.IndexFunc(e.status, func(line policyStatus) bool { return line.policy == p.Policy })]
			switch {
			case !changed[name]:
				t.Errorf("%s: nothing was changed: %+v", name, p)
			case c.cause != "" && (p.Outcome != Stopped || m.cause != c.cause || !strings.Contains(p.Error, c.says)):
				t.Errorf("%s: %s, %q, %s; want that it stops, %q, and says %q", name, p.Outcome, m.cause, p.Error, c.cause, c.says)
			case c.cause == "" && p.Outcome != Finished:
				t.Errorf("%s: %s, %q, %s; want that it goes on", name, p.Outcome, m.cause, p.Error)
			case c.cause == "":
				if got := one[string](t, db, "select count(*)::text from "+table[name]); got != c.left {
					t.Errorf("%s: %s rows are left, want %s", name, got, c.left)
				}
			}
		}
		if got := one[int](t, db, "select count(*) from others"); got != 0 {
			t.Errorf("the other policy has %d rows left", got)
		}
		if got := one[int](t, db, "select count(*) from lapse.quarantine"); got != 0 {
			t.Errorf("%d rows are in quarantine", got)
		}
	})
}

// Without an index a batch reads the whole table to find its rows. Its statement_timeout ends that, down to a batch of one row: the shard is
// put aside then, and the policy says why. Nothing is in quarantine: it is no row's fault.
func TestThatNotEvenOneRowIsFoundInTimeIsNoRowsFault(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 3000, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		w := open(t, db, "p")
		owned(t, db, "drop index sessions_at_id_idx")
		w.a.Limits.Statement = time.Millisecond
		for _, o := range []batch.Order{{Limit: 50}, {Limit: 1}, {Limit: 1, StepOver: true}} {
			_, _, err := w.Delete(t.Context(), w.a, testKey, o)
			want := map[bool]Grade{true: PutAside, false: StepOver}[o.StepOver]
			if o.Limit > 1 {
				want = Halve
			}
			if got := grade(err, circumstances{limit: o.Limit, stepOver: o.StepOver, own: true}); schemas.StateOf(err) != schemas.SQLStateQueryCanceled || got != want {
				t.Fatalf("%+v: %v, %v; want a timeout, and %v", o, err, got, want)
			}
			if err = stripped("find one row", err); CauseOf(err) != CauseSlow || !strings.Contains(err.Error(), "see that an index begins with the policy's column") {
				t.Errorf("it says %q: %v", CauseOf(err), err)
			}
		}
		if got := one[int](t, db, "select count(*) from lapse.quarantine"); got != 0 {
			t.Errorf("%d rows are in quarantine", got)
		}
	})
}
