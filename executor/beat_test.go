package executor

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"lapse/executor/guard"
	"lapse/internal/pgserver"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// audited is a database with due rows, an armed policy, publications, a slot and no beat.
func audited(t *testing.T, db *pgtest.DB) {
	t.Helper()
	sessions(t, db, 50, 5)
	arm(t, db, policies(policy("p", "public.sessions")))
	requireAudit(t, db)
	makeSlot(t, db)
}

// look is what a fresh reading of the audit says, as a process does that saw the auditor's walsender a moment ago.
func (w *work) look(t *testing.T) guard.Reason {
	t.Helper()
	g := testGuards(t)
	g.memory.AuditorSeen = time.Now()
	answer, err := g.ask(t.Context(), w.Control, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if answer.Stops() && (answer.Detail == "" || answer.Fix == "") {
		t.Errorf("%+v says no detail or no fix", answer)
	}
	return answer.Reason
}

// refused wants a batch to be refused with state, for later, and a look to say why.
func (w *work) refused(t *testing.T, what, state string, reason guard.Reason) {
	t.Helper()
	if got := w.look(t); got != reason {
		t.Errorf("%s: a look says %q, want %q", what, got, reason)
	}
	done, err := w.batch(t, 1)
	if schemas.StateOf(err) != state || grade(err, circumstances{limit: 1, own: true}) != Retry {
		t.Errorf("%s: the batch gave %+v, %v; want %s, to be tried again", what, done, err, state)
	}
}

// goes wants a batch of one row to delete it.
func (w *work) goes(t *testing.T, what string) {
	t.Helper()
	if got := w.look(t); got != "" {
		t.Errorf("%s: a look says %q", what, got)
	}
	if done, err := w.batch(t, 1); err != nil || done.Deleted != 1 {
		t.Errorf("%s: the batch gave %+v, %v", what, done, err)
	}
}

func TestOnlyABeatOfThisServerInThisHistoryLetsABatchRun(t *testing.T) {
	t.Parallel()
	const lately = "clock_timestamp() - n * interval '1 second'"
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		audited(t, db)
		w := open(t, db, "p")
		w.refused(t, "no beat", schemas.SQLStateNoBeat, guard.NoHeartbeat)
		for what, c := range map[string]struct {
			beats  string
			reason guard.Reason
		}{
			"another history":     {pgtest.Beats(lately, "history = 2"), guard.HistoryChanged},
			"another timeline":    {pgtest.Beats(lately, "timeline = lapse.timeline() + 1"), guard.HistoryChanged},
			"another server's":    {pgtest.Beats(lately, "system_identifier = '1'", "server_start = pg_postmaster_start_time() - interval '1 hour'"), guard.HistoryChanged},
			"an earlier start":    {pgtest.Beats(lately, "server_start = pg_postmaster_start_time() - interval '1 microsecond'"), guard.NoHeartbeat},
			"another database":    {pgtest.Beats(lately, "database_oid = 1"), guard.NoHeartbeat},
			"more than 2 min old": {pgtest.Beats("clock_timestamp() - interval '2 minutes' - n * interval '1 second'"), guard.NoHeartbeat},
			"3 min to come":       {pgtest.Beats("clock_timestamp() + interval '3 minutes' + n * interval '1 second'"), guard.NoHeartbeat},
		} {
			db.Exec(t, "truncate lapse.heartbeat", c.beats)
			w.refused(t, what, schemas.SQLStateNoBeat, c.reason)
		}
		pgtest.Beat(t, db)
		w.goes(t, "a beat")
		if left := one[int](t, db, "select count(*) from sessions"); left != 54 {
			t.Errorf("%d rows are left, want 54", left)
		}
	})
}

func TestARestartOfTheServerMakesItsBeatsWorthless(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		audited(t, db)
		pgtest.Beat(t, db)
		open(t, db, "p").goes(t, "before")
		if err := db.Server.Stop(t.Context(), pgserver.Fast); err != nil {
			t.Fatal(err)
		}
		if err := db.Server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		db.Exec(t, "update lapse.shard set lease_until = null")
		w := open(t, db, "p")
		w.refused(t, "after", schemas.SQLStateNoBeat, guard.NoHeartbeat)
		pgtest.Beat(t, db)
		w.goes(t, "with a beat of the running server")
	})
}

func TestAPromotionMakesBeatsWorthlessAndWithoutAnAuditWantsAPerson(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		audited(t, db)
		pgtest.Beat(t, db)
		becomeStandby(t, db)
		db.Exec(t, "select pg_promote()", "update lapse.shard set lease_until = null")
		if timeline := one[int](t, db, "select lapse.timeline()"); timeline != 2 {
			t.Fatalf("the timeline is %d, want 2", timeline)
		}
		w := open(t, db, "p")
		w.refused(t, "promoted", schemas.SQLStateNoBeat, guard.HistoryChanged)
		// The slots are still there: the standby had them itself.
		pgtest.Beat(t, db)
		w.goes(t, "with a beat of this timeline, in the same history")
		db.Exec(t, "update lapse.installation set audit_required = false")
		w.refused(t, "promoted, audit off", schemas.SQLStateHistory, guard.HistoryChanged)
		db.Exec(t, "insert into lapse.history (number, timeline, system_identifier, reason) values (2, lapse.timeline(), lapse.system_identifier(), 'meant')")
		w.goes(t, "audit off, accepted")
	})
}

func TestAClaimOfAnotherHistoryIsRefused(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		w := open(t, db, "p")
		w.forge(t, func(c *schemas.Claim) { c.History++ }, 1, schemas.SQLStateHistory)
		w.forge(t, func(c *schemas.Claim) { c.Timeline++ }, 1, schemas.SQLStateHistory)
		w.forge(t, func(c *schemas.Claim) {}, 1, "")
		db.Exec(t, "insert into lapse.history (number, timeline, system_identifier, reason) values (2, lapse.timeline(), lapse.system_identifier(), 'accepted')")
		w.forge(t, func(c *schemas.Claim) { c.History-- }, 1, schemas.SQLStateHistory)
		w.goes(t, "a claim of the history that was just accepted")
		if got := one[string](t, db, "select count(*) filter (where history = 1) || ' ' || count(*) filter (where history = 2) || ' ' || bool_and(timeline = lapse.timeline()) from lapse.batch"); got != "1 1 true" {
			t.Errorf("the ledger has %s, want a batch of each history", got)
		}
	})
}

func TestWithTheAuditOffAServerThatNobodyAcceptedIsRefused(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		w := open(t, db, "p")
		for i, other := range []string{"lapse.timeline() + 1, lapse.system_identifier()", "lapse.timeline(), '1'"} {
			db.Exec(t, "insert into lapse.history (number, timeline, system_identifier, reason) select "+[]string{"2", "4"}[i]+", "+other+", 'elsewhere'")
			w.refused(t, other, schemas.SQLStateHistory, guard.HistoryChanged)
			_, err := newExecutor(t, db).Once(t.Context(), nil)
			var refusal *guard.Refusal
			if !errors.As(err, &refusal) || refusal.Reason != guard.HistoryChanged {
				t.Errorf("%s: one pass ended with %v", other, err)
			}
			db.Exec(t, "insert into lapse.history (number, timeline, system_identifier, reason) select "+[]string{"3", "5"}[i]+", lapse.timeline(), lapse.system_identifier(), 'accepted'")
			w.goes(t, "accepted")
		}
	})
}

func TestHistoriesAreOnlyEverAdded(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	conn := db.Connect(t)
	for _, statement := range []string{"update lapse.history set number = 2", "delete from lapse.history", "truncate lapse.history"} {
		if _, err := conn.Exec(t.Context(), statement); schemas.StateOf(err) != "42501" {
			t.Errorf("%s: %v, want a refusal", statement, err)
		}
	}
	if got := one[string](t, db, "select number || ' ' || reason || ' ' || (log_end is null) || ' ' || timeline from lapse.history"); got != "1 installed true 1" {
		t.Errorf("the first history is %q", got)
	}
}

// beatAs calls lapse.beat with the auditor's login.
func beatAs(t *testing.T, db *pgtest.DB, history, timeline, start string) error {
	t.Helper()
	conn := db.ConnectAs(t, schemas.RolesFor(schemas.DefaultRolePrefix).Auditor)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	_, err := conn.Exec(t.Context(), "select lapse.beat(gen_random_uuid(), "+
		history+", "+timeline+", "+start+", null)")
	return err
}

const (
	presentNumber = "(select max(number) from lapse.history)"
	presentStart  = "pg_postmaster_start_time()"
)

func TestABeatIsOfTheServerThatItIsWrittenOn(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		for what, err := range map[string]error{
			"a former history":   beatAs(t, db, "0", "lapse.timeline()", presentStart),
			"a history to come":  beatAs(t, db, "2", "lapse.timeline()", presentStart),
			"another timeline":   beatAs(t, db, presentNumber, "2", presentStart),
			"another start":      beatAs(t, db, presentNumber, "lapse.timeline()", presentStart+" - interval '1 second'"),
			"nothing of a start": beatAs(t, db, presentNumber, "lapse.timeline()", "null"),
		} {
			if schemas.StateOf(err) != schemas.SQLStateHistory {
				t.Errorf("%s: %v, want %s", what, err, schemas.SQLStateHistory)
			}
		}
		for range 2 {
			if err := beatAs(t, db, presentNumber, "lapse.timeline()", presentStart); err != nil {
				t.Fatal(err)
			}
		}
		const chain = `select count(*) || ' ' || count(former) || ' ' || count(*) filter (where exists (select from lapse.heartbeat f where f.nonce = h.former)) from lapse.heartbeat h`
		if got := one[string](t, db, chain); got != "2 1 1" {
			t.Errorf("beats, with a former one; one is to be there: %s", got)
		}
	})
}

func TestTheNewestThousandBeatsAreNeverRemoved(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		for range 20 {
			db.Exec(t, pgtest.Beats("clock_timestamp() - interval '500 days'"))
		}
		if err := beatAs(t, db, presentNumber, "lapse.timeline()", presentStart); err != nil {
			t.Fatal(err)
		}
		if n := one[int](t, db, "select count(*) from lapse.heartbeat"); n != 1001 {
			t.Errorf("%d beats are left, want the newest thousand and the one just written", n)
		}
	})
}

// One heartbeat a day is kept for months without an executor: lapse.measure finds by them that the clock did not jump.
func TestABeatOfEachDayIsKeptForFourHundredDays(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		noon := "date_trunc('day', now(), 'UTC') - interval '%d days' + interval '12 hours' + n * interval '10 minutes'"
		days := []int{500, 402, 398, 90, 40, 39, 3}
		for _, day := range days {
			db.Exec(t, pgtest.Beats(fmt.Sprintf(noon, day)))
		}
		for range 17 { // the newest thousand
			pgtest.Beat(t, db)
		}
		for range 2 {
			if err := beatAs(t, db, presentNumber, "lapse.timeline()", presentStart); err != nil {
				t.Fatal(err)
			}
		}
		const kept = `select string_agg(distinct extract(day from date_trunc('day', now(), 'UTC') + interval '12 hours' - at)::int || 'd', ' ') || ' ' || count(*)
			from lapse.heartbeat where at < now() - interval '2 days'`
		if got := one[string](t, db, kept); got != "398d 39d 3d 40d 90d 5" {
			t.Errorf("left are %s, want the first of each of the last 400 days", got)
		}
	})
}
