package executor

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

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
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		requireAudit(t, db)
		refused := func(want Reason) {
			t.Helper()
			_, err := newExecutor(t, db).Once(t.Context(), nil)
			var refusal *Refusal
			if !errors.As(err, &refusal) || refusal.Reason != want || refusal.Fix == "" {
				t.Errorf("got %v, want a refusal for %s with its fix", err, want)
			}
			if left := one[int](t, db, "select count(*) from sessions"); left != 55 {
				t.Fatalf("%s: %d rows are left of 55", want, left)
			}
		}
		refused(ReasonNoSlot)
		foreign := pgtest.New(t, db.Major)
		foreign.Exec(t, "select pg_create_logical_replication_slot('"+slotOf(db)+"', 'pgoutput')")
		refused(ReasonForeignSlot)
		foreign.Exec(t, "select pg_drop_replication_slot('"+slotOf(db)+"')")
		makeSlot(t, db)
		refused(ReasonNoAuditor)
		pgtest.Beat(t, db)
		once(t, newExecutor(t, db))
		if left := one[int](t, db, "select count(*) from sessions"); left != 5 {
			t.Errorf("with the auditor at work %d rows are left, want 5", left)
		}
	})
}

func TestWithAuditOffNoSlotIsNeeded(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
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
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		requireAudit(t, db)
		makeSlot(t, db)
		pgtest.Beat(t, db)
		for range 4 {
			db.Exec(t, "select pg_logical_emit_message(false, 'noise', repeat('x', 1000000)) from generate_series(1, 17)", "select pg_switch_wal()")
		}
		db.Exec(t, "checkpoint")
		_, err := newExecutor(t, db).Once(t.Context(), nil)
		var refusal *Refusal
		if !errors.As(err, &refusal) || refusal.Reason != ReasonLostSlot {
			t.Errorf("got %v, want a refusal for a lost slot", err)
		}
	}, pgtest.Settings(map[string]string{"max_slot_wal_keep_size": "16MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}))
}

// The auditor must have confirmed every batch older than a minute. The clock here is the test's.
func TestAnAuditorThatFallsBehindStopsDeletionUntilItCatchesUp(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		requireAudit(t, db)
		makeSlot(t, db)
		w := open(t, db, "p")
		var h health
		clock := time.Now()
		look := func() Reason {
			t.Helper()
			pgtest.Beat(t, db)
			clock = clock.Add(healthInterval)
			err := h.check(t.Context(), w.session, clock)
			var refusal *Refusal
			if err != nil && !errors.As(err, &refusal) {
				t.Fatal(err)
			}
			if refusal == nil {
				return ""
			}
			return refusal.Reason
		}
		batch := func() {
			t.Helper()
			begun, _, err := w.deleteBatch(t.Context(), w.a, testKey, 10)
			if err != nil {
				t.Fatal(err)
			}
			h.above(begun.insert)
			h.ended(clock)
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
		if got := look(); got != ReasonAuditBehind {
			t.Errorf("a minute after an unconfirmed batch: %q", got)
		}
		confirm(t, db)
		if got := look(); got != "" {
			t.Errorf("after the auditor caught up: %s", got)
		}
		batch()
		above, err := w.release(t.Context(), w.a.lease)
		if err != nil {
			t.Fatal(err)
		}
		h.above(above)
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
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		requireAudit(t, db)
		makeSlot(t, db)
		pgtest.Beat(t, db)
		w := open(t, db, "p")
		if _, err := w.batch(t, 10); err != nil { // by a former process
			t.Fatal(err)
		}
		var h health
		clock := time.Now()
		if err := h.check(t.Context(), w.session, clock); err != nil {
			t.Errorf("at once: %v", err)
		}
		err := h.check(t.Context(), w.session, clock.Add(auditSilence+time.Second))
		var refusal *Refusal
		if !errors.As(err, &refusal) || refusal.Reason != ReasonAuditBehind {
			t.Errorf("a minute later: %v, want a refusal", err)
		}
	})
}

func TestAnAuditorThatWasSeenIsBelievedForAMinute(t *testing.T) {
	t.Parallel()
	now := time.Now()
	at := func(p position) *int64 { v := int64(p); return &v }
	good := audit{required: true, exists: true, local: true, status: "reserved", active: true, confirmed: at(100), insert: at(100)}
	gone := good
	gone.active = false
	beating := gone
	good.beaten, beating.beaten = true, true
	other := past{History: 1, Timeline: 2, System: "1"}
	bent := gone
	bent.last = &other
	active, restarted, tampered := bent, good, good
	active.active = true
	restarted.beaten, restarted.restarted = false, true
	tampered.difference = "publication lapse_deletes was changed"
	var h health
	for _, step := range []struct {
		name  string
		after time.Duration
		look  audit
		want  Reason
	}{
		{"never seen", 0, gone, ReasonNoAuditor},
		{"active", 0, good, ""},
		{"away for a minute, and its heart beats", time.Minute, beating, ""},
		{"away for a minute, without a beat", 0, gone, ReasonNoBeat},
		{"away for longer", time.Second, gone, ReasonNoAuditor},
		{"away, but its heart beats", 0, beating, ""},
		{"at work, and its last beat is of another timeline", 0, active, ReasonHistoryChanged},
		{"away for a minute, and its beats are of another timeline", time.Minute, bent, ReasonHistoryChanged},
		{"at work, and the server was started again", 0, restarted, ReasonNoBeat},
		{"at work, and the publications are not as they were", 0, tampered, ReasonPublicationsDiffer},
	} {
		now = now.Add(step.after)
		err := h.judge(&step.look, now)
		var refusal *Refusal
		switch errors.As(err, &refusal); {
		case refusal == nil && step.want != "", refusal != nil && refusal.Reason != step.want:
			t.Errorf("%s: %v, want %q", step.name, err, step.want)
		}
	}
}

func TestAStandbyIsRefused(t *testing.T) {
	t.Parallel()
	var h health
	var refusal *Refusal
	if err := h.judge(&audit{standby: true}, time.Now()); !errors.As(err, &refusal) || refusal.Reason != ReasonStandby {
		t.Errorf("got %v", err)
	}
}

// A server that is told to be a standby says so to pg_is_in_recovery, with no primary anywhere.
func TestNothingRunsOnAStandby(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		becomeStandby(t, db)
		_, err := newExecutor(t, db).Once(t.Context(), nil)
		var refusal *Refusal
		if !errors.As(err, &refusal) || refusal.Reason != ReasonStandby {
			t.Errorf("got %v, want a refusal on a standby", err)
		}
	})
}

func TestADatabaseWithoutLapseIsRefusedWithTheFix(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		db.Exec(t, "drop schema lapse cascade")
		_, err := executorAt(t, db.URL).Once(t.Context(), nil)
		if err == nil || !strings.Contains(err.Error(), "lapse init") {
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
	db.Exec(t, "insert into lapse.halt (halted, reason) values (false, 'it was looked at')")
}

func TestWhileEverythingIsPausedNothingIsDeletedAndReadinessSaysWhoAndWhy(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		halt(t, db, "batch 4711 fits no key\nand more")
		e := newExecutor(t, db)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		var refusal *Refusal
		eventually(t, "the pause is reported", func() bool {
			return errors.As(e.Ready(), &refusal) && counted(t, e, "lapse_skips_total", string(ReasonPausedAll)) > 0
		})
		when := one[string](t, db, "select to_char(at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS') from lapse.halt")
		for _, want := range []string{when + " UTC", "by postgres", `"batch 4711 fits no key\nand more"`, "lapse resume --all --reason"} {
			if refusal.Reason != ReasonPausedAll || !strings.Contains(refusal.Error(), want) {
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
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		db.Exec(t, "insert into lapse.halt (halted, reason) values (true, repeat('ä', 900))")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := newExecutor(t, db).Once(ctx, nil)
		var refusal *Refusal
		if !errors.As(err, &refusal) || refusal.Reason != ReasonPausedAll || len([]rune(refusal.Detail)) > 700 {
			t.Errorf("got %v, want a refusal that does not repeat all that somebody wrote", err)
		}
		resume(t, db)
		once(t, newExecutor(t, db))
		if left := one[int](t, db, "select count(*) from sessions"); left != 5 {
			t.Errorf("%d rows are left, want 5", left)
		}
	})
}

// What is paused between two looks at health is noticed by the batch itself.
func TestABatchThatMeetsThePauseIsTriedAgain(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
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
		if done, err := w.batch(t, 10); err != nil || done.deleted != 10 {
			t.Errorf("%d rows deleted after the pause (%v), want 10", done.deleted, err)
		}
	})
}

// Run reports a refusal once, waits, and goes on by itself.
func TestRunWaitsOutARefusal(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		requireAudit(t, db)
		e := newExecutor(t, db)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		eventually(t, "the refusal is reported", func() bool {
			var refusal *Refusal
			return errors.As(e.Ready(), &refusal) && counted(t, e, "lapse_skips_total", string(ReasonNoSlot)) > 0
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
