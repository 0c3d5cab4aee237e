package planner

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

// slowly makes the policy's survey function take very long with the table locked, where it counts.
func (w *world) slowly(p *InForce) {
	w.t.Helper()
	must(w.t, run(w.admin, fmt.Sprintf(`do $$ begin
		execute regexp_replace(pg_get_functiondef('%s(timestamptz, bigint)'::regprocedure),
			'in access share mode;', E'\\&\n  if at_most is distinct from 0 then perform pg_sleep(600); end if;');
	end $$`, SurveyFunction(p.ID, p.Version))))
}

// A counting that goes on for long has the table locked against whoever wants to change it, and with them against everybody.
func TestACountingForTheBreakerGivesWayToWhoeverWantsToChangeTheTable(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, `create table t (id bigint, at timestamptz not null, primary key (id, at)) partition by range (at)`,
			`create table t_old partition of t for values from (minvalue) to (maxvalue)`,
			`insert into t select n, now() - interval '1 year' from generate_series(1, 100) n`, `create index on t (at, id)`, `analyze t`)
		p := w.armed(policyText("shop.t", "at", "30 days", "    state: armed"))
		w.slowly(&p)
		conn, app := db.ConnectAs(t, testRoles.Executor), db.ConnectAs(t, w.app)
		defer func() { _, _ = conn.Close(context.Background()), app.Close(context.Background()) }()
		judge := func(column string) (j Judgement, err error) {
			t.Helper()
			changed := make(chan error, 1)
			go func() {
				for {
					var counts bool
					err := w.admin.QueryRow(t.Context(), `select wait_event is not distinct from 'PgSleep' from pg_stat_activity where pid = $1`, int32(conn.PgConn().PID())).Scan(&counts)
					if err != nil || counts {
						changed <- errors.Join(err, run(app, `alter table shop.t add column `+column+` int`))
						return
					}
				}
			}()
			j, err = Judge(t.Context(), conn, w.exec, &p, time.Now())
			must(t, <-changed)
			return j, err
		}
		// What is compared with what was to be expected is estimated then.
		if j, err := judge("a"); err != nil || j.DueIs != Estimated || j.Due != 100 {
			t.Errorf("without max_fraction: %+v, %v, want an estimate", j, err)
		}
		p.Limits.MaxFraction = 0.5
		if j, err := judge("b"); !errors.Is(err, ErrAwaited) || schemas.StateOf(err) != schemas.SQLStateQueryCanceled {
			t.Errorf("with max_fraction: %+v, %v, want that it gives way", j, err)
		}
		// Who has it locked, or a partition of it, is not waited for, by a session without a lock_timeout either.
		for _, locked := range []string{`lock table only shop.t in access exclusive mode`, `lock table only shop.t_old in access exclusive mode`} {
			must(t, run(app, `begin`))
			must(t, run(app, locked))
			impatient, stop := context.WithTimeout(t.Context(), time.Minute)
			if _, err := Judge(impatient, conn, w.exec, &p, time.Now()); schemas.StateOf(err) != schemas.SQLStateLockNotAvailable {
				t.Errorf("behind %s: %v", locked, err)
			}
			stop()
			must(t, run(app, `rollback`))
		}
		// A cancel that was asked for hits nothing else.
		var one int
		must(t, conn.QueryRow(t.Context(), `select 1`, pgx.QueryExecModeSimpleProtocol).Scan(&one))
	})
}

// A writer is not in the way of a reader alone, and who waits for another table is not waited for.
func TestACountingForTheBreakerGivesWayToNobodyElse(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	w := newWorld(t, db, `create table t (id int)`, `create table other (id int)`)
	counts := db.ConnectAs(t, testRoles.Executor)
	defer func() { _ = counts.Close(context.Background()) }()
	must(t, run(w.admin, `grant usage on schema shop to public`))
	must(t, run(w.admin, `grant select on shop.t to public`))
	for _, c := range []struct {
		holds, waits string
		gives        bool
	}{
		{`lock table shop.t in share mode`, `insert into shop.t values (1)`, false},
		{`lock table shop.other in access share mode`, `alter table shop.other add column a int`, false},
		{`lock table shop.t in access share mode`, `alter table shop.t add column a int`, true},
	} {
		must(t, run(counts, `begin`))
		must(t, run(counts, `select from shop.t`))
		must(t, run(w.admin, `begin`))
		must(t, run(w.admin, c.holds))
		ended := make(chan error, 1)
		go func() { ended <- run(w.owner, c.waits) }()
		for !valueOn[bool](t, w.exec, `select exists (select from pg_locks where not granted and pid = $1)`, int32(w.owner.PgConn().PID())) {
		}
		if got := valueOn[bool](t, w.exec, giveWaySQL, int32(counts.PgConn().PID())); got != c.gives {
			t.Errorf("%s, behind %s: %v", c.waits, c.holds, got)
		}
		must(t, run(w.admin, `rollback`))
		must(t, run(counts, `rollback`))
		must(t, <-ended)
	}
}
