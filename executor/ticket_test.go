package executor

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"lapse/executor/batch"
	"lapse/executor/guard"
	"lapse/internal/pgtest"
)

// holder makes connections that hold an answer back.
type holder struct{ meanwhile atomic.Pointer[func()] }

// next runs f when the next answer has come, and before the worker reads it.
func (h *holder) next(f func()) { h.meanwhile.Store(&f) }

func (h *holder) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	return &heldConn{conn, h}, err
}

type heldConn struct {
	net.Conn
	holder *holder
}

func (c *heldConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if f := c.holder.meanwhile.Swap(nil); f != nil {
		(*f)()
	}
	return n, err
}

// A position that was asked for before another worker's batch ended says nothing of that batch, however late the answer
// comes: the ticket is drawn before the question.
func TestABatchThatEndsBeforeAPositionArrivesIsNotBelowIt(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(*testing.T, *worker, *work, *holder){
		"look": func(t *testing.T, w *worker, _ *work, _ *holder) {
			if _, err := w.guards.ask(t.Context(), w.session.Control, nil, w.now()); err != nil {
				t.Fatal(err)
			}
		},
		"batch": func(t *testing.T, w *worker, run *work, _ *holder) {
			turn := newTurn(run.policy, w.memory(run.policy))
			turn.opened(&run.run, 1000, time.Now().Add(time.Hour))
			if _, end, err := w.batch(t.Context(), turn, run.a, batch.Order{Limit: run.policy.Batch}, run.policy.Batch, true); err != nil || end != turnGoesOn {
				t.Fatalf("the batch ended with %v, %v", end, err)
			}
		},
		"batch that was begun ahead": func(t *testing.T, w *worker, run *work, h *holder) {
			meanwhile := h.meanwhile.Swap(nil)
			if _, err := w.guards.ask(t.Context(), w.session.Control, nil, w.now()); err != nil {
				t.Fatal(err)
			}
			turn := newTurn(run.policy, w.memory(run.policy))
			turn.opened(&run.run, 1000, w.now().Add(time.Hour))
			if _, end, err := w.batch(t.Context(), turn, run.a, batch.Order{Limit: run.policy.Batch}, run.policy.Batch, true); err != nil || end != turnGoesOn || !w.session.BegunAhead() {
				t.Fatalf("the batch ended with %v, %v, ahead %v", end, err, w.session.Ahead)
			}
			(*meanwhile)()
			if _, end, err := w.batch(t.Context(), turn, run.a, batch.Order{Limit: run.policy.Batch}, run.policy.Batch, true); err != nil || end != turnGoesOn {
				t.Fatalf("the batch ended with %v, %v", end, err)
			}
			w.session.Abandon(t.Context())
		},
		"lease given back": func(t *testing.T, w *worker, run *work, _ *holder) { w.giveBack(t.Context(), run.a.Lease) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
				sessions(t, db, 50, 5)
				arm(t, db, policies(policy("p", "public.sessions", "batch: 10", "pace: unlimited")))
				requireAudit(t, db)
				makeSlot(t, db)
				pgtest.Beat(t, db)
				var h holder
				clock := time.Now()
				e := newExecutor(t, db, func(c *Config) {
					c.Database.DialFunc = h.dial
					c.Clock = func() time.Time { return clock }
				})
				run := open(t, db, "p")
				e.holder = run.holder // it goes on with the run's shard
				w := e.newWorker(0, newScheduler(endless{e}, e.memory, e.now))
				defer w.close()
				if err := w.connect(t.Context(), notAtAll); err != nil {
					t.Fatal(err)
				}
				look := func() guard.Reason {
					t.Helper()
					pgtest.Beat(t, db)
					clock = clock.Add(factsInterval)
					answer, err := w.guards.ask(t.Context(), w.session.Control, nil, clock)
					if err != nil {
						t.Fatal(err)
					}
					return answer.Reason
				}
				look()
				clock = clock.Add(factsInterval)
				held := false
				h.next(func() {
					w.guards.memory.Unconfirmed.Ended(clock) // another worker's
					clock = clock.Add(40 * time.Second)
					held = true
				})
				ask(t, w, run, &h)
				if !held {
					t.Fatal("no answer was held back")
				}
				confirm(t, db) // past the position that was asked for
				if got := look(); got != "" {
					t.Fatalf("after the auditor came past the position: %s", got)
				}
				clock = clock.Add(25 * time.Second)
				if got := look(); got != guard.NoAuditor { // nobody reads the slot here
					t.Errorf("a minute after the other worker's batch: %q, want %s", got, guard.NoAuditor)
				}
			})
		})
	}
}
