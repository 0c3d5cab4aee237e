package executor

import (
	"context"
	"errors"
	"strings"
	"testing"

	"lapse/executor/guard"
	"lapse/internal/pgtest"
)

// A person's pause is not unready: the process does what it was told. A pod that it kept from being ready would hold up a rolling update.
func TestWhileAPersonHasPausedEverythingTheExecutorIsReadyAndSaysSo(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		sessions(t, db, 50, 5)
		arm(t, db, policies(policy("p", "public.sessions")))
		db.Exec(t, "insert into lapse.halt (halted, reason) values (true, 'a migration')")
		e := newExecutor(t, db)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		eventually(t, "the pause is counted", func() bool { return counted(t, e, "lapse_skips_total", string(guard.PausedAll)) > 0 })
		if err := e.Ready(); err != nil {
			t.Errorf("paused by a person, and not ready: %v", err)
		}
		if says := e.Paused(); !strings.Contains(says, `by postgres: "a migration"`) || counted(t, e, "lapse_paused") != 1 {
			t.Errorf("it says %q, and lapse_paused is %v", says, counted(t, e, "lapse_paused"))
		}
		halt(t, db, "a batch fits no key") // the alarm is not hidden by the pause
		eventually(t, "the alarm makes it unready", func() bool {
			var refusal *guard.Refusal
			return errors.As(e.Ready(), &refusal) && refusal.Reason == guard.Alarmed && e.Paused() == ""
		})
		resume(t, db)
		eventually(t, "what is due is deleted", func() bool { return one[int](t, db, "select count(*) from sessions") == 5 })
		if e.Ready() != nil || e.Paused() != "" || counted(t, e, "lapse_paused") != 0 {
			t.Errorf("resumed: ready %v, paused %q", e.Ready(), e.Paused())
		}
		stop()
		if err := <-ended; err != nil {
			t.Errorf("stopped with %v", err)
		}
	})
}
