package planner

import (
	"fmt"
	"testing"

	"lapse/internal/pgtest"
	"lapse/planner/run"
	"lapse/schemas"
)

// marking is a function that leaves a lock in the session in which it runs, whatever is rolled back there.
func marking(name string) string {
	return `create function ` + name + `(bigint) returns bigint immutable language plpgsql as $$ begin perform pg_advisory_lock_shared(4711); return $1; end $$`
}

// ranMarking reports whether such a function has run in the executor's session since it was last asked.
func (w *world) ranMarking() bool {
	w.t.Helper()
	ran := valueOn[bool](w.t, w.exec, `select exists (select from pg_locks l where l.pid = pg_backend_pid() and l.locktype = 'advisory')`)
	must(w.t, runSQL(w.exec, `select pg_advisory_unlock_all()`))
	return ran
}

// A session plans the statement of a look a few times and keeps the plan. What is found is found with it too.
func TestALookKeepsItsPlan(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		// PostgreSQL evaluates the condition of an index whenever it plans. A superuser's function may run there.
		must(t, w.script(`set search_path = shop; `+marking("known")+`; create index on sessions (id) where known(1) = 1; reset search_path`))
		w.fill("sessions", 10)
		w.do(`update sessions set last_seen = now()`)
		p := w.armed(untilArmed)
		w.wantDue(&p)
		if !w.ranMarking() {
			t.Fatal("the function does not show when a statement is planned")
		}
		for range 8 {
			w.wantDue(&p)
		}
		w.ranMarking()
		w.wantDue(&p)
		if w.ranMarking() {
			t.Error("a look has planned its statement again")
		}
		w.do(`insert into sessions values (1000, now() - interval '31 days')`)
		w.wantDue(&p, "sessions")
		w.do(`delete from sessions where id = 1000`)
		w.wantDue(&p)
		if w.ranMarking() {
			t.Error("a look has planned its statement again")
		}
	})
}

// What a table's owner makes of it between two looks of a session is refused as in the first one, and no code of the owner's runs.
func TestALookThatHasItsPlanChecksTheTableAgain(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions, `create index by_time on sessions (last_seen, id)`, marking("spy"))
		p := w.armed(untilArmed)
		const aside, back = `alter table sessions rename to visits`, `alter table visits rename to sessions`
		for _, c := range []struct {
			name, state string
			does, undo  []string
		}{
			{"an index over a function", schemas.SQLStateTriggers, []string{`create index spied on sessions (spy(id)) where spy(1) = 1`}, []string{`drop index spied`}},
			{"statistics", schemas.SQLStateTriggers, []string{`create statistics spied on (spy(id)), id from sessions`}, []string{`drop statistics spied`}},
			{"a check", schemas.SQLStateTriggers, []string{`alter table sessions add constraint spied check (spy(id) > 0)`}, []string{`alter table sessions drop constraint spied`}},
			{
				"row security", "", // which a deleter is not subject to
				[]string{`create policy spied on sessions using (spy(id) > 0)`, `alter table sessions enable row level security`},
				[]string{`alter table sessions disable row level security`, `drop policy spied on sessions`},
			},
			{"another type", schemas.SQLStateColumns, []string{`alter table sessions alter column last_seen type timestamp`}, []string{`alter table sessions alter column last_seen type timestamptz`}},
			{"another table", schemas.SQLStateTarget, []string{aside, `create table sessions (like visits including all)`, `insert into sessions values (1, '2000-01-01')`}, []string{`drop table sessions`, back}},
			{"a view", schemas.SQLStateTarget, []string{aside, `create view sessions as select spy(id) as id, last_seen from visits`}, []string{`drop view sessions`, back}},
			{"a partitioned table", schemas.SQLStateTarget, []string{
				aside, `create table sessions (id bigint, last_seen timestamptz) partition by list (spy(id))`, `create table sessions_1 partition of sessions default`,
			}, []string{`drop table sessions`, back}},
			{"no table", schemas.SQLStateTarget, []string{aside}, []string{back}},
			{"no index", "", []string{`drop index by_time`}, nil},
		} {
			for range 8 {
				w.wantDue(&p)
			}
			for _, sql := range c.does {
				w.do(sql)
			}
			look, err := w.lookAt(&p, nil)
			if err == nil {
				err = run.Acquaint(t.Context(), w.exec, &p, &look)
			}
			if got := schemas.StateOf(err); got != c.state {
				t.Errorf("%s: got %v, want SQLSTATE %q", c.name, err, c.state)
			}
			for _, sql := range c.undo {
				w.do(sql)
			}
			if w.ranMarking() {
				t.Errorf("%s: the owner's code has run in a look", c.name)
			}
			w.wantDue(&p)
		}
		w.do(`insert into sessions values (1000, now() - interval '31 days')`)
		w.wantDue(&p, "sessions")
	})
}

// The statement of a look names variables of its function. Columns of those names are others.
func TestALookReadsNoColumnThatIsNamedAsAVariableOfIts(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db)
		columns := []string{"cutoff", "bound", "due", "until", "at_cutoff"}
		file := "policies:\n"
		for _, column := range columns {
			w.do(`create table by_` + column + ` (id bigint primary key, cutoff timestamptz, bound timestamptz, due timestamptz, until timestamptz, at_cutoff timestamptz, leaf oid, kept boolean,
				mark bigint, quiet bigint[], place text, sight text, spared text, stays text, low text, fresh int, read boolean, t text, s text, k1 text, at text)`)
			file += fmt.Sprintf("  - {name: %s, table: shop.by_%[1]s, expire: {column: %[1]s, after: 30 days}, state: armed}\n", column)
		}
		w.armed(file)
		for _, column := range columns {
			p := w.named(schemas.PolicyName(column))
			old := "insert into by_" + column + " (id"
			values := ") select 1"
			for _, other := range columns {
				if other != column {
					old, values = old+", "+other, values+", now() - interval '1 year'"
				}
			}
			w.do(old + values)
			w.do(`update by_` + column + ` set ` + column + ` = now()`)
			w.wantDue(&p)
			w.do(`update by_` + column + ` set ` + column + ` = now() - interval '31 days'`)
			w.wantDue(&p, "by_"+column)
		}
	})
}
