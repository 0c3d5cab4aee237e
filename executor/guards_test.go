package executor

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/executor/batch"
	"lapse/executor/guard"
	"lapse/internal/pgserver"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// slotOf is the name of a database's own slot: slots are the server's.
func slotOf(db *pgtest.DB) string { return db.Name + "_slot" }

// requireAudit makes the installation one that deletes nothing without its slot, and publishes the table of the tests.
func requireAudit(t testing.TB, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, "update lapse.installation set audit_required = true, slot = '"+slotOf(db)+"'")
	pgtest.Publish(t, db, "public.sessions")
}

// makeSlot makes the slot; confirm moves it to the end of the log.
func makeSlot(t testing.TB, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, "select pg_create_logical_replication_slot('"+slotOf(db)+"', 'pgoutput')")
}

func confirm(t testing.TB, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, "select pg_replication_slot_advance('"+slotOf(db)+"', pg_current_wal_lsn())")
}

func TestNothingIsDeletedWithoutAnAudit(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		requireAudit(t, db)
		refused := func(want guard.Reason) {
			t.Helper()
			_, err := newExecutor(t, db).Once(t.Context(), nil)
			var refusal *guard.Refusal
			if !errors.As(err, &refusal) || refusal.Reason != want || refusal.Fix == "" {
				t.Errorf("got %v, want a refusal for %s with its fix", err, want)
			}
			if left := one[int](t, db, "select count(*) from sessions"); left != 55 {
				t.Fatalf("%s: %d rows are left of 55", want, left)
			}
		}
		refused(guard.NoSlot)
		foreign := pgtest.New(t, db.Major)
		foreign.Exec(t, "select pg_create_logical_replication_slot('"+slotOf(db)+"', 'pgoutput')")
		refused(guard.ForeignSlot)
		foreign.Exec(t, "select pg_drop_replication_slot('"+slotOf(db)+"')")
		makeSlot(t, db)
		refused(guard.NoAuditor)
		pgtest.Beat(t, db)
		once(t, newExecutor(t, db))
		if left := one[int](t, db, "select count(*) from sessions"); left != 5 {
			t.Errorf("with the auditor at work %d rows are left, want 5", left)
		}
	})
}

// The deletion functions look for themselves: a batch that is under way when the beats are taken back is refused too.
func TestBeatsThatTheAuditorTakesBackCountForNothing(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		audited(t, db)
		pgtest.Beat(t, db)
		db.Exec(t, `select lapse.doubt()`, `select lapse.doubt()`)
		_, err := newExecutor(t, db).Once(t.Context(), nil)
		var refusal *guard.Refusal
		if !errors.As(err, &refusal) || refusal.Reason != guard.NoHeartbeat || !strings.Contains(refusal.Detail, "revoked its heartbeats") {
			t.Errorf("got %v", err)
		}
		blind := newExecutor(t, db) // as one whose look was before
		blind.guards.list = nil
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, _ = blind.Once(ctx, nil)
		if left := one[int](t, db, "select count(*) from sessions"); left != 55 {
			t.Fatalf("%d rows are left of 55", left)
		}
		pgtest.Beat(t, db)
		once(t, newExecutor(t, db))
		if left := one[int](t, db, "select count(*) from sessions"); left != 5 {
			t.Errorf("after the next beat %d rows are left, want 5", left)
		}
	})
}

func TestWithAuditOffNoSlotIsNeeded(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		once(t, newExecutor(t, db))
		if left := one[int](t, db, "select count(*) from sessions"); left != 5 {
			t.Errorf("%d rows are left, want 5", left)
		}
	})
}

func TestASlotThatLostItsLogStopsDeletion(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		audited(t, db)
		pgtest.Beat(t, db)
		for range 4 {
			db.Exec(t, "select pg_logical_emit_message(false, 'noise', repeat('x', 1000000)) from generate_series(1, 17)", "select pg_switch_wal()")
		}
		db.Exec(t, "checkpoint")
		_, err := newExecutor(t, db).Once(t.Context(), nil)
		var refusal *guard.Refusal
		if !errors.As(err, &refusal) || refusal.Reason != guard.LostSlot {
			t.Errorf("got %v, want a refusal for a lost slot", err)
		}
	}, pgtest.Settings(map[string]string{"max_slot_wal_keep_size": "16MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}))
}

// testGuards are the product's guards, which say what they log when the test fails.
func testGuards(t testing.TB) *guards {
	return newGuards(guard.All(guard.Limits{}, nil), nil, slog.New(slog.NewTextHandler(testLog{t}, nil)), newMetrics())
}

// The auditor must have confirmed every batch older than a minute. The clock here is the test's.
func TestAnAuditorThatFallsBehindStopsDeletionUntilItCatchesUp(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		audited(t, db)
		w := open(t, db, "p")
		g := testGuards(t)
		clock := time.Now()
		look := func() guard.Reason {
			t.Helper()
			pgtest.Beat(t, db)
			clock = clock.Add(factsInterval)
			answer, err := g.ask(t.Context(), w.Control, nil, clock)
			if err != nil {
				t.Fatal(err)
			}
			return answer.Reason
		}
		batch := func() {
			t.Helper()
			ticket := g.memory.Unconfirmed.Draw()
			begun, _, err := w.Delete(t.Context(), w.a, testKey, batch.Order{Limit: 10})
			if err != nil {
				t.Fatal(err)
			}
			g.memory.Unconfirmed.Below(ticket, begun.Insert)
			g.memory.Unconfirmed.Ended(clock)
		}
		if got := look(); got != "" {
			t.Fatalf("at the start: %s", got)
		}
		confirm(t, db)
		batch()
		clock = clock.Add(30 * time.Second)
		if got := look(); got != "" {
			t.Fatalf("half a minute after a batch: %s", got)
		}
		batch()
		clock = clock.Add(31 * time.Second)
		if got := look(); got != guard.NoAuditor { // nobody reads the slot here
			t.Errorf("a minute after an unconfirmed batch: %q", got)
		}
		confirm(t, db)
		if got := look(); got != "" {
			t.Errorf("after the auditor caught up: %s", got)
		}
		batch()
		ticket := g.memory.Unconfirmed.Draw()
		above, err := w.Release(t.Context(), w.a.Lease)
		if err != nil {
			t.Fatal(err)
		}
		g.memory.Unconfirmed.Below(ticket, above)
		confirm(t, db)
		clock = clock.Add(time.Hour)
		if got := look(); got != "" {
			t.Errorf("an hour after a confirmed batch: %s", got)
		}
	})
}

func TestAfterARestartThePresentPositionMustBeConfirmed(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		audited(t, db)
		pgtest.Beat(t, db)
		w := open(t, db, "p")
		if _, err := w.batch(t, 10); err != nil { // by a former process
			t.Fatal(err)
		}
		g := testGuards(t)
		clock := time.Now()
		if a, err := g.ask(t.Context(), w.Control, nil, clock); err != nil || a.Verdict != guard.Go {
			t.Errorf("at once: %+v, %v", a, err)
		}
		a, err := g.ask(t.Context(), w.Control, nil, clock.Add(guard.AuditorSilence+time.Second))
		if err != nil || a.Verdict != guard.Refuse || a.Reason != guard.NoAuditor {
			t.Errorf("a minute later: %+v, %v, want a refusal", a, err)
		}
	})
}

// A server that is told to be a standby says so to pg_is_in_recovery, with no primary anywhere.
func TestNothingRunsOnAStandby(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		becomeStandby(t, db)
		_, err := newExecutor(t, db).Once(t.Context(), nil)
		var refusal *guard.Refusal
		if !errors.As(err, &refusal) || refusal.Reason != guard.Standby {
			t.Errorf("got %v, want a refusal on a standby", err)
		}
	})
}

func TestADatabaseWithoutLapseIsRefusedWithTheFix(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		db.Exec(t, "drop schema lapse cascade")
		_, err := executorAt(t, db.URL).Once(t.Context(), nil)
		var refusal *guard.Refusal
		if !errors.As(err, &refusal) || refusal.Reason != guard.NotInstalled || !strings.Contains(err.Error(), "lapse init") {
			t.Errorf("got %v, want a refusal that says `lapse init`", err)
		}
	})
}

// halt and resume are what a person or the auditor's alarm does, and a person takes back.
func halt(t testing.TB, db *pgtest.DB, reason string) {
	t.Helper()
	db.Exec(t, "select lapse.alarm('"+reason+"')")
}

func resume(t testing.TB, db *pgtest.DB) {
	t.Helper()
	db.Exec(t, "insert into lapse.halt (halted, reason) values (false, 'it was checked')")
}

func TestWhileTheAlarmStandsNothingIsDeletedAndReadinessSaysWhoAndWhy(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		halt(t, db, "batch 4711 fits no key\nand more")
		e := newExecutor(t, db)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		var refusal *guard.Refusal
		eventually(t, "the pause is reported", func() bool {
			return errors.As(e.Ready(), &refusal) && counted(t, e, "lapse_skips_total", string(guard.Alarmed)) > 0 && counted(t, e, "lapse_paused") == 1
		})
		when := one[string](t, db, "select to_char(at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS') from lapse.halt")
		for _, want := range []string{when + " UTC", "by postgres", `"batch 4711 fits no key\nand more"`, "lapse resume --all --reason"} {
			if refusal.Reason != guard.Alarmed || !strings.Contains(refusal.Error(), want) {
				t.Errorf("%s: %q does not say %q", refusal.Reason, refusal, want)
			}
		}
		if left := one[int](t, db, "select count(*) from sessions"); left != 55 {
			t.Errorf("%d rows are left of 55", left)
		}
		resume(t, db)
		eventually(t, "what is due is deleted", func() bool { return one[int](t, db, "select count(*) from sessions") == 5 })
		if err := e.Ready(); err != nil {
			t.Errorf("deleting and not ready: %v", err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("stopped with %v", err)
		}
	})
}

func TestOnePassWhileEverythingIsPausedIsRefused(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		db.Exec(t, "insert into lapse.halt (halted, reason) values (true, repeat('ä', 900))")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := newExecutor(t, db).Once(ctx, nil)
		var refusal *guard.Refusal
		if !errors.As(err, &refusal) || refusal.Reason != guard.PausedAll || len([]rune(refusal.Detail)) > 700 {
			t.Errorf("got %v, want a refusal that does not repeat all that somebody wrote", err)
		}
		resume(t, db)
		once(t, newExecutor(t, db))
		if left := one[int](t, db, "select count(*) from sessions"); left != 5 {
			t.Errorf("%d rows are left, want 5", left)
		}
	})
}

// What is paused between two checks of health is noticed by the batch itself.
func TestABatchThatMeetsThePauseIsTriedAgain(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		w := open(t, db, "p")
		halt(t, db, "a batch fits no key")
		_, err := w.batch(t, 10)
		if schemas.StateOf(err) != schemas.SQLStateHalted || grade(err, circumstances{limit: 10}) != Retry {
			t.Errorf("got %v, want %s, to be retried", err, schemas.SQLStateHalted)
		}
		if left := one[int](t, db, "select count(*) from sessions"); left != 55 {
			t.Errorf("%d rows are left of 55", left)
		}
		resume(t, db)
		if done, err := w.batch(t, 10); err != nil || done.Deleted != 10 {
			t.Errorf("%d rows deleted after the pause (%v), want 10", done.Deleted, err)
		}
	})
}

// Run reports a refusal once, waits, and goes on by itself.
func TestRunWaitsOutARefusal(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		requireAudit(t, db)
		e := newExecutor(t, db)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		eventually(t, "the refusal is reported", func() bool {
			var refusal *guard.Refusal
			return errors.As(e.Ready(), &refusal) && counted(t, e, "lapse_skips_total", string(guard.NoSlot)) > 0
		})
		makeSlot(t, db)
		pgtest.Beat(t, db)
		eventually(t, "what is due is deleted", func() bool { return one[int](t, db, "select count(*) from sessions") == 5 })
		if err := e.Ready(); err != nil {
			t.Errorf("deleting and not ready: %v", err)
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("stopped with %v", err)
		}
	})
}

// becomeStandby restarts a solo server as a standby that reads only its own log, until the test ends.
func becomeStandby(t *testing.T, db *pgtest.DB) {
	t.Helper()
	if err := db.Server.Stop(t.Context(), pgserver.Fast); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(db.Server.DataDir(), "standby.signal"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = db.Server.Start(ctx) // it waits for a primary's readiness, which never comes
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	eventually(t, "the standby takes connections", func() bool {
		conn, err := pgx.Connect(t.Context(), db.URL)
		if err != nil {
			return false
		}
		return conn.Close(t.Context()) == nil
	})
}
