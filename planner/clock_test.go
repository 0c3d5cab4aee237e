package planner

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"lapse/internal/pgtest"
	"lapse/planner/change"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/schemas"
)

// jump is what lapse.open_run says of the clock, and in which words.
func (w *world) jump(p *record.InForce) (state string) {
	w.t.Helper()
	_, err := run.Open(w.t.Context(), w.exec, p, time.Now, run.Options{})
	var jump *run.ClockJumpError
	if state = schemas.StateOf(err); state != "" && state != schemas.SQLStateGate {
		w.t.Errorf("the refusal still carries SQLSTATE %s", state)
	}
	switch {
	case err == nil:
		return ""
	case !errors.As(err, &jump) || jump.Policy != p.Name || !strings.Contains(err.Error(), "lapse clock accept"):
		w.t.Fatalf("got %v, want a ClockJumpError that says what to do", err)
	case strings.Contains(jump.What, "before the last cutoff"):
		return schemas.SQLStateClockBack
	case strings.Contains(jump.What, "after the last cutoff"):
		return schemas.SQLStateClockAhead
	}
	w.t.Fatalf("got %q", jump.What)
	return ""
}

// A clock that was in 2031 for a while leaves a run of 2031; one that did not move leaves a last run of long ago. Neither
// is gone by, and one row of lapse.clock heals both.
func TestAClockThatJumpedAsksOnce(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.fill("sessions", 10)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		forge := func(cutoff string) {
			t.Helper()
			must(t, w.script(`with run as (
				  insert into lapse.run (run, policy_id, version, cutoff, started_at) values (gen_random_uuid(), 1, 1, `+cutoff+`, `+cutoff+`) returning *
				)
				insert into lapse.shard (run, policy_id, version, leaf, cutoff) select run, 1, 1, 'shop.sessions'::regclass, cutoff from run`))
		}
		accept := func() {
			t.Helper()
			must(t, runSQL(w.admin, `insert into lapse.clock (after_run, reason) select coalesce(max(number), 0), 'a test' from lapse.run`))
		}
		forge(`'2031-01-01'`)
		if got := w.jump(&p); got != schemas.SQLStateClockBack {
			t.Errorf("after a run of 2031: got %q", got)
		}
		if n := valueOn[int](t, w.exec, `select count(*) from lapse.shard where not done`); n != 1 {
			t.Errorf("%d shards are there after a refusal, want what was", n)
		}
		accept()
		p = w.inForce()[0]
		if p.LastRun != nil {
			t.Errorf("the run of 2031 counts for the schedule: %+v", p.LastRun)
		}
		r := w.open(&p)
		if n := valueOn[int](t, w.exec, `select count(*) from lapse.shard where cutoff > now()`); n != 0 || r.Resumed {
			t.Errorf("%d shards of 2031 are left, resumed %t", n, r.Resumed)
		}
		if total := w.deleteAll(p, r, 100); total.Deleted != 10 {
			t.Errorf("after the clock was accepted %d rows are deleted, want ten", total.Deleted)
		}
		_ = w.open(&p)

		must(t, runSQL(w.admin, `truncate lapse.run cascade`))
		forge(`now() - interval '100 days'`)
		must(t, runSQL(w.admin, `update lapse.shard set done = true`))
		must(t, w.script(`alter table lapse.policy_state disable trigger all; update lapse.policy_state set changed_at = changed_at - interval '100 days'`))
		if got := w.jump(&p); got != schemas.SQLStateClockAhead {
			t.Errorf("a hundred days after the last run: got %q", got)
		}
		accept()
		if got := w.jump(&p); got != "" {
			t.Errorf("after the clock was accepted: got %q", got)
		}
	})
}

// Time without an executor asks nobody as far as heartbeats reach over it. That one of each day is kept is lapse.beat's.
func TestHeartbeatsCarryTheMeasureOfTheClockOn(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.fill("sessions", 10)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		w.deleteAll(p, w.open(&p), 100)
		must(t, w.script(`alter table lapse.policy_state disable trigger all; alter table lapse.heartbeat disable trigger all;
			update lapse.policy_state set changed_at = changed_at - interval '150 days';
			update lapse.run set cutoff = cutoff - interval '150 days';
			update lapse.shard set cutoff = cutoff - interval '150 days'`))
		beat := func(ago ...int) {
			t.Helper()
			must(t, runSQL(w.admin, fmt.Sprintf(`
				insert into lapse.heartbeat (at, system_identifier, database_oid, database, nonce, history, timeline, server_start)
				select clock_timestamp() - a * interval '1 day', 'x', 1, 'x', gen_random_uuid(), 1, 1, now()
				  from unnest('{%s}'::int[]) a`, strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ago)), ","), "[]"))))
		}
		if got := w.jump(&p); got != schemas.SQLStateClockAhead {
			t.Errorf("without a heartbeat: got %q", got)
		}
		beat(-20, 1, 30, 119)
		if got := w.jump(&p); got != schemas.SQLStateClockAhead {
			t.Errorf("with a heartbeat 89 days after the one before: got %q", got)
		}
		beat(88, 59)
		if got := w.jump(&p); got != "" {
			t.Errorf("with heartbeats that are a month apart: got %q", got)
		}
	})
}

func TestTheNextCutoffIsMeasuredByTheLastAndTheSchedule(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.apply(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		measure := func() string {
			return valueOn[string](t, w.exec, `
				select concat_ws(' ', case m.last when (select max(changed_at) from lapse.policy_state s where s.state = g.state) then 'state'
				         when (select accepted from lapse.clock order by id desc limit 1) then 'accepted'
				         when (select max(cutoff) from lapse.run) then 'last run' else m.last::text end, m.reach)
				  from lapse.gate g, lapse.measure(1) m`)
		}
		want := func(want string) {
			t.Helper()
			if got := measure(); got != want {
				t.Errorf("measured by %s, want %s", got, want)
			}
		}
		want("state 31 days 02:00:00")
		w.arm(1)
		want("state 31 days 02:00:00")
		p := w.inForce()[0]
		r := w.open(&p)
		want("last run 31 days 02:00:00")
		must(t, runSQL(w.admin, `insert into lapse.clock (after_run, reason) select max(number), '' from lapse.run`))
		want("accepted 31 days 02:00:00")
		w.deleteAll(p, r, 10)
		_ = w.open(&p)
		want("last run 31 days 02:00:00")
		p = w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed", `    daily: "03:00 Europe/Berlin"`))
		want("last run 33 days") // an edit is no person who arms
		p = w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed", "    every: 90 days"))
		want("last run 211 days")
		must(t, runSQL(w.admin, `update lapse.run set cutoff = now() - interval '210 days'`))
		if got := w.jump(&p); got != "" {
			t.Errorf("within the measure: got %q", got)
		}
		w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		want("last run 211 days") // as old as the last run may be by its own version
		p = w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed", "    every: 90 days"))
		must(t, w.script(`truncate lapse.shard; update lapse.run set cutoff = now() - interval '212 days';
			alter table lapse.policy_state disable trigger all; update lapse.policy_state set changed_at = changed_at - interval '213 days'`))
		want("last run 211 days")
		if got := w.jump(&p); got != schemas.SQLStateClockAhead {
			t.Errorf("beyond the measure: got %q", got)
		}
	})
}

func TestALookThatFoundNothingIsNoReasonToAskAboutTheClock(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		w.fill("sessions", 10)
		p := w.armed(untilArmed)
		w.open(&p)
		back := func(by string) {
			t.Helper()
			must(t, w.script(`update lapse.run set cutoff = cutoff - interval '`+by+`', started_at = started_at - interval '`+by+`'; delete from lapse.shard;
				alter table lapse.policy_state disable trigger all; update lapse.policy_state set changed_at = changed_at - interval '`+by+`';
				update lapse.looked set at = at - interval '`+by+`'`))
		}
		back("20 days")
		must(t, run.Looked(t.Context(), w.exec, &p))
		back("20 days")
		p = w.inForce()[0]
		if since := time.Since(p.LookedAt); since < 19*24*time.Hour || since > 21*24*time.Hour {
			t.Errorf("the last look was %s ago", since)
		}
		if got := w.jump(&p); got != "" {
			t.Errorf("after a look: got %q", got)
		}
		back("100 days")
		if got := w.jump(&p); got != schemas.SQLStateClockAhead {
			t.Errorf("long after it: got %q", got)
		}
		// A look under such a clock is not written down: the next one would be no reason to ask any more.
		must(t, run.Looked(t.Context(), w.exec, &p))
		if got := w.jump(&p); got != schemas.SQLStateClockAhead {
			t.Errorf("after a look under a wrong clock: got %q", got)
		}
		// Arming or resuming the policy says that time has passed.
		must(t, runSQL(w.admin, `insert into lapse.policy_state (policy_id, version, state) values ($1, $2, 'armed')`, p.ID, p.Version))
		if got := w.jump(&p); got != "" {
			t.Errorf("after it was armed again: got %q", got)
		}
		must(t, runSQL(w.admin, `update lapse.looked set at = '2100-01-01'`))
		must(t, runSQL(w.admin, `delete from lapse.shard`))
		p = w.inForce()[0]
		if got := w.jump(&p); got != "" || !p.LookedAt.IsZero() {
			t.Errorf("a look in the future counts: %q, %s", got, p.LookedAt)
		}
	})
}

// The clock is in the future: a person who arms says that it is right. One who edits the file has not looked at it.
func TestAnEditDoesNotSayThatTheClockIsRight(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		w := newWorld(t, db, sessions)
		p := w.armed(policyText("shop.sessions", "last_seen", "30 days", "    state: armed"))
		w.deleteAll(p, w.open(&p), 10)
		must(t, w.script(`update lapse.run set cutoff = cutoff - interval '100 days', started_at = started_at - interval '100 days';
			alter table lapse.policy_state disable trigger all; update lapse.policy_state set changed_at = changed_at - interval '100 days'`))
		if got := w.jump(&p); got != schemas.SQLStateClockAhead {
			t.Fatalf("a hundred days after the last run: got %q", got)
		}
		for _, edit := range []string{"    batch: 10", "    every: 2 hours"} {
			p = w.armed(policyText("shop.sessions", "last_seen", "30 days", edit))
			if got := w.jump(&p); got != schemas.SQLStateClockAhead {
				t.Errorf("after an edit: got %q", got)
			}
		}
		pause := change.Pause(&p)
		must(t, w.write(&pause))
		p = w.inForce()[0]
		resume, err := change.Resume(t.Context(), w.admin, &p)
		must(t, err)
		must(t, w.write(&resume))
		w.armed(policyText("shop.sessions", "last_seen", "30 days", "    batch: 11")) // before it is armed
		p = w.inForce()[0]
		if got := w.jump(&p); got != "" {
			t.Errorf("after a person has resumed it: got %q", got)
		}
	})
}
