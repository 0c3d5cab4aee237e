package audit_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"lapse/audit"
	"lapse/replication"
)

// waiting is an auditor that finds the slot in use.
type waiting struct {
	*running
	log      *testLog
	measured *audit.Metrics
	tries    atomic.Int32
}

// startWaiting starts an auditor while somebody else has the slot, and waits until it has tried to have it several times.
func (r *rig) startWaiting(t *testing.T, beats time.Duration) *waiting {
	t.Helper()
	w := &waiting{log: &testLog{t: t}, measured: audit.NewMetrics()}
	w.running = r.start(t, r.beating(beats), func(c *audit.Config) {
		c.Logger, c.Metrics = slog.New(slog.NewTextHandler(w.log, nil)), w.measured
		c.Stream.Admit = func(context.Context, *pgconn.PgConn) error {
			w.tries.Add(1)
			return nil
		}
	})
	w.triesAgain(t, 4)
	return w
}

// triesAgain waits until it has tried so many times more.
func (w *waiting) triesAgain(t *testing.T, times int32) {
	t.Helper()
	until := w.tries.Load() + times
	eventually(t, "the auditor tries to have the slot", func() bool { return w.tries.Load() > until })
}

// said counts the lines of the log with a text.
func (w *waiting) said(text string) int { return strings.Count(w.log.String(), text) }

// A second auditor used to be not ready, said that it was connecting to PostgreSQL, and warned at each try.
func TestAnAuditorBesideAnotherStandsByIsReadyAndSaysSoOnce(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		first := r.start(t, r.beating(time.Minute))
		eventually(t, "the first auditor is ready", func() bool { return first.Ready() == nil })
		second := r.startWaiting(t, time.Minute)
		if err := second.Ready(); err != nil {
			t.Errorf("an auditor that stands by is not ready: %v", err)
		}
		if got := gather(t, second.measured); got["lapse_standing_by"] != 1 || got["lapse_audit_lag_seconds"] != 0 {
			t.Errorf("standing by is %v in the metrics, and the lag %v s", got["lapse_standing_by"], got["lapse_audit_lag_seconds"])
		}
		if n, warned := second.said("standing by"), second.said("level=WARN"); n != 1 || warned != 0 {
			t.Errorf("the log says it %d times, and warns %d times, in %d tries", n, warned, second.tries.Load())
		}
		first.end(t)
		eventually(t, "the second auditor takes over", func() bool {
			return second.Ready() == nil && second.said("audit streaming") == 1
		})
		if got := gather(t, second.measured); got["lapse_standing_by"] != 0 {
			t.Error("an auditor at work stands by")
		}
	})
}

// The slot may be read by something that is no auditor. Nobody says that all is well then.
func TestAnAuditorBesideAReaderThatIsNoAuditorIsNotReady(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		r.once(t) // topics and log are there
		stream, err := replication.Open(t.Context(), replication.StreamConfig{ConnString: r.settings.URL, Slot: r.settings.Slot})
		if err != nil {
			t.Fatal(err)
		}
		w := r.startWaiting(t, time.Second/10)
		eventually(t, "it says that no auditor is alive", func() bool {
			err := w.Ready()
			return err != nil && strings.Contains(err.Error(), "no auditor has written a heartbeat for")
		})
		w.triesAgain(t, 2)
		if n := w.said("no auditor is alive"); n != 1 {
			t.Errorf("the log says it %d times", n)
		}
		if got := gather(t, w.measured); got["lapse_standing_by"] != 0 {
			t.Error("it stands by all the same")
		}
		if err := stream.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it takes over", func() bool { return w.Ready() == nil && w.said("audit streaming") == 1 })
	})
}
