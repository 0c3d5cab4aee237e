package planner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/planner/change"
	"lapse/planner/database"
	"lapse/planner/functions"
	"lapse/planner/record"
	"lapse/planner/survey"
	"lapse/schemas"
)

// slowly makes the policy's survey function take so many seconds longer with the table locked, where it counts.
func (w *world) slowly(p *record.InForce, seconds float64) {
	w.t.Helper()
	must(w.t, runSQL(w.admin, fmt.Sprintf(`do $$ begin
		execute regexp_replace(pg_get_functiondef('%s(timestamptz, bigint, bigint)'::regprocedure),
			'in access share mode;', E'\\&\n  if at_most is distinct from 0 then perform pg_sleep(%g); end if;');
	end $$`, functions.SurveyFunction(p.ID, p.Version), seconds)))
}

// become opens a session of a login that has become the executor, as a command's is: it may not cancel the login's sessions.
func (w *world) become(login string) *pgx.Conn {
	w.t.Helper()
	config, err := pgx.ParseConfig(w.db.As(login))
	must(w.t, err)
	config.RuntimeParams["role"] = testRoles.Executor
	conn, err := pgx.ConnectConfig(w.t.Context(), config)
	must(w.t, err)
	w.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// A count that goes on for long keeps the table locked against sessions that want to change it, and with them against everybody.
//
//lapse:long
func TestACountGivesWayToASessionThatWantsToChangeTheTable(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table t (id bigint, at timestamptz not null, primary key (id, at)) partition by range (at)`,
			`create table t_old partition of t for values from (minvalue) to (maxvalue)`,
			`insert into t select n, now() - interval '1 year' from generate_series(1, 100) n`, `create index on t (at, id)`, `analyze t`)
		p := w.armed(policyText("shop.t", "at", "30 days", "    state: armed"))
		w.slowly(&p, 600)
		login := db.NewRole(t, "runner", "in role", testRoles.Executor)
		conn, control, app := w.become(login), w.become(login), db.ConnectAs(t, w.app)
		columns := 0
		// beside changes the table while a count sleeps.
		beside := func(count func()) {
			t.Helper()
			columns++
			changed := make(chan error, 1)
			go func() {
				for {
					var counts bool
					err := w.admin.QueryRow(t.Context(), `select exists (select from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep')`).Scan(&counts)
					if err != nil || counts {
						changed <- errors.Join(err, runSQL(app, fmt.Sprintf(`alter table shop.t add column c%d int`, columns)))
						return
					}
				}
			}()
			count()
			must(t, <-changed)
		}
		// What is compared with what was to be expected is estimated then.
		beside(func() {
			if j, err := survey.Judge(t.Context(), conn, control, &p, time.Now()); err != nil || j.DueIs != survey.Estimated || j.Due != 100 {
				t.Errorf("without max_fraction: %+v, %v, want an estimate", j, err)
			}
		})
		p.Limits.MaxFraction = 0.5
		beside(func() {
			if j, err := survey.Judge(t.Context(), conn, control, &p, time.Now()); !errors.Is(err, database.ErrAwaited) || schemas.StateOf(err) != schemas.SQLStateQueryCanceled {
				t.Errorf("with max_fraction: %+v, %v, want that it gives way", j, err)
			}
		})
		beside(func() {
			if r, err := survey.Remaining(t.Context(), conn, control, &p, time.Now()); !errors.Is(err, database.ErrAwaited) {
				t.Errorf("at the end of a run: %+v, %v, want that it gives way", r, err)
			}
		})
		beside(func() {
			if s, err := (survey.Ask{AtMost: 1000}).InForce(t.Context(), conn, &p); err != nil || s.DueIs != survey.Estimated || s.Due != 100 || s.Trouble != "" {
				t.Errorf("of a plan: %+v, %v, want an estimate", s, err)
			}
		})
		beside(func() {
			if s, err := surveyInForce(t.Context(), conn, &p, time.Now()); err != nil || !strings.HasPrefix(s.Trouble, database.ErrAwaited.Error()) {
				t.Errorf("of a plan that counts all: %+v, %v, want that it gives way", s, err)
			}
		})
		// Who has it locked, or a partition of it, is not waited for, by a session without a lock_timeout either.
		for _, locked := range []string{`lock table only shop.t in access exclusive mode`, `lock table only shop.t_old in access exclusive mode`} {
			must(t, runSQL(app, `begin`))
			must(t, runSQL(app, locked))
			impatient, stop := context.WithTimeout(t.Context(), time.Minute)
			if _, err := survey.Judge(impatient, conn, control, &p, time.Now()); schemas.StateOf(err) != schemas.SQLStateLockNotAvailable {
				t.Errorf("behind %s: %v", locked, err)
			}
			stop()
			must(t, runSQL(app, `rollback`))
		}
		// A cancel that was asked for hits nothing else.
		var one int
		must(t, conn.QueryRow(t.Context(), `select 1`, pgx.QueryExecModeSimpleProtocol).Scan(&one))
	})
}

// A count of a policy that is not applied gives way too, with each of the sessions that it is made of.
func TestADraftsCountGivesWayToASessionThatWantsToChangeTheTable(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	b := newBare(t, db, "postgres", sessions)
	b.fill("sessions", 5)
	resolved := b.proposals(untilSessions)[0].Resolved
	// A superuser's code, which lapse.intruders lets pass, and which runs where a query of the table is planned.
	must(t, b.script(`
		create function shop.sleeps(at timestamptz) returns timestamptz language plpgsql immutable as $f$
		begin
		  if to_regprocedure('pg_temp.survey(timestamptz, bigint, bigint)') is not null
		     and not exists (select from pg_attribute where attrelid = 'shop.sessions'::regclass and attname = 'more') then
		    perform pg_sleep(600);
		  end if;
		  return at;
		end $f$;
		create index on shop.sessions (shop.sleeps('2020-01-01'::timestamptz))`))
	changed := make(chan error, 1)
	go func() {
		for {
			var counts bool
			err := b.admin.QueryRow(t.Context(), `select exists (select from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep')`).Scan(&counts)
			if err != nil || counts {
				changed <- errors.Join(err, runSQL(b.owner, `alter table shop.sessions add column more int`))
				return
			}
		}
	}()
	s, err := change.SurveyDraft(t.Context(), b.draft(nil), survey.Ask{AtMost: 1000}, resolved)
	must(t, <-changed)
	if err != nil || s.Trouble != "" || s.DueIs != survey.Estimated {
		t.Errorf("%+v, %v, want an estimate", s, err)
	}
}

// A writer is not in the way of a reader alone, and who waits for another table is not waited for.
func TestACountGivesWayToNobodyElse(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	w := newWorld(t, db, `create table t (id int)`, `create table other (id int)`)
	counts := db.ConnectAs(t, testRoles.Executor)
	defer func() { _ = counts.Close(context.Background()) }()
	must(t, runSQL(w.admin, `grant usage on schema shop to public`))
	must(t, runSQL(w.admin, `grant select on shop.t to public`))
	for _, c := range []struct {
		holds, waits string
		gives        bool
	}{
		{`lock table shop.t in share mode`, `insert into shop.t values (1)`, false},
		{`lock table shop.other in access share mode`, `alter table shop.other add column a int`, false},
		{`lock table shop.t in access share mode`, `alter table shop.t add column a int`, true},
	} {
		must(t, runSQL(counts, `begin`))
		must(t, runSQL(counts, `select from shop.t`))
		must(t, runSQL(w.admin, `begin`))
		must(t, runSQL(w.admin, c.holds))
		ended := make(chan error, 1)
		go func() { ended <- runSQL(w.owner, c.waits) }()
		for !valueOn[bool](t, w.exec, `select exists (select from pg_locks where not granted and pid = $1)`, int32(w.owner.PgConn().PID())) {
		}
		if got := valueOn[bool](t, w.exec, database.AwaitedSQL, int32(counts.PgConn().PID())); got != c.gives {
			t.Errorf("%s, behind %s: %v", c.waits, c.holds, got)
		}
		must(t, runSQL(w.admin, `rollback`))
		must(t, runSQL(counts, `rollback`))
		must(t, <-ended)
	}
}

// From 17 on a session for batches bounds its transactions more tightly than a count is bounded, and a bound that a single statement reaches ends
// the session, not the statement.
func TestACountIsNotEndedByTheBoundOfABatchsTransaction(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{17, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table t (id bigint primary key, at timestamptz not null) with (autovacuum_enabled = off)`, `create index on t (at, id)`,
			`insert into t select n, now() - interval '1 year' from generate_series(1, 100) n`)
		p := w.armed(policyText("shop.t", "at", "30 days", "    state: armed"))
		config, err := pgx.ParseConfig(db.As(testRoles.Executor))
		must(t, err)
		config.RuntimeParams["transaction_timeout"] = "250ms"
		conn, err := pgx.ConnectConfig(t.Context(), config)
		must(t, err)
		defer func() { _ = conn.Close(context.Background()) }()
		still := func() {
			t.Helper()
			if got := valueOn[string](t, conn, `show transaction_timeout`); got != "250ms" {
				t.Errorf("afterwards transaction_timeout is %s", got)
			}
		}
		w.slowly(&p, 0.4)
		if rows, err := survey.TableRows(t.Context(), conn, w.exec, &p, time.Now()); err != nil || rows != 100 {
			t.Fatalf("the table has %d rows, %v, want 100", rows, err)
		}
		still()
		if j, err := survey.Judge(t.Context(), conn, w.exec, &p, time.Now()); err != nil || j.Due != 100 || j.DueIs != survey.Exact {
			t.Fatalf("before a run: %+v, %v, want that 100 rows are counted", j, err)
		}
		still()
		if r, err := survey.Staying(t.Context(), conn, w.exec, &p, time.Now()); err != nil || r.Due != 100 || !r.Exact {
			t.Fatalf("of what stays: %+v, %v, want that 100 rows are counted", r, err)
		}
		still()
	})
}
