package audit

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"lapse/audit/evidence"
	"lapse/audit/history"
	"lapse/schemas"
)

// Server is where a heartbeat is written: the server of the stream, as the history check found it.
type Server struct {
	History     schemas.History
	Timeline    schemas.Timeline
	ServerStart time.Time
}

// startHeartbeats writes a heartbeat when a stream has passed the history check, and then one each HeartbeatEvery. It has its own
// goroutine, because a slow database must not hold up the stream.
func (a *Auditor) startHeartbeats(ctx context.Context) (stop func()) {
	if a.config.asks.beat == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(a.config.HeartbeatEvery)
		defer tick.Stop()
		for {
			select {
			case <-a.streamOpened:
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			if server := a.server.Load(); server != nil {
				a.writeHeartbeat(ctx, server)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (a *Auditor) writeHeartbeat(ctx context.Context, server *Server) {
	writing, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	nonce, err := uuid.NewV7()
	if err == nil {
		err = a.config.asks.beat(writing, nonce, *server)
	}
	if ctx.Err() != nil {
		return // Run ends
	}
	if err != nil {
		a.log.Warn("heartbeat not written", "error", err)
		a.heartbeats.notWritten(time.Now())
		return
	}
	a.heartbeats.written(time.Now())
}

// doubt revokes the heartbeats if err needs a person. The auditor that refuses had the slot, so no other auditor is at work.
func (a *Auditor) doubt(ctx context.Context, err error) {
	var refused *history.RefusalError
	var bent *history.BentError
	if a.config.asks.doubt == nil || !errors.As(err, &refused) && !errors.As(err, &bent) {
		return
	}
	writing, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	if err := a.config.asks.doubt(writing); err != nil && ctx.Err() == nil {
		a.log.Warn("heartbeats not taken back: until they are two minutes old executors go on", "error", err)
	}
}

// heartbeatMonitor tracks whether heartbeats come back through the stream, and what the last one says about the publications. Safe for
// concurrent use.
type heartbeatMonitor struct {
	failing atomic.Int64           // time of the first heartbeat that could not be written since the last that could; Unix µs, 0 for none
	waiting atomic.Int64           // time of the first heartbeat that was written since the last that came back; Unix µs, 0 for none
	fault   atomic.Pointer[string] // the change in the publications that the last heartbeat reports; nil or empty for none
}

func (m *heartbeatMonitor) written(now time.Time) {
	m.failing.Store(0)
	m.waiting.CompareAndSwap(0, now.UnixMicro())
}

func (m *heartbeatMonitor) notWritten(now time.Time) { m.failing.CompareAndSwap(0, now.UnixMicro()) }

// reset forgets the heartbeats that were written for another stream.
func (m *heartbeatMonitor) reset() {
	m.failing.Store(0)
	m.waiting.Store(0)
}

// received records a heartbeat that came back.
func (m *heartbeatMonitor) received(h *evidence.Heartbeat) {
	m.waiting.Store(0)
	m.fault.Store(&h.Fault)
}

// check returns an error if heartbeats could not be written, or have not come back, for longer than limit, or if somebody else has changed the
// publications.
func (m *heartbeatMonitor) check(limit time.Duration) error {
	if fault := m.fault.Load(); fault != nil && *fault != "" {
		return fmt.Errorf("what is published is not what Lapse published: %s: put it back, then run lapse init", *fault)
	}
	if failing := sinceMicro(m.failing.Load()); failing > limit {
		return fmt.Errorf("heartbeats could not be written for %s, so that nothing is deleted: the log of the auditor says why",
			failing.Round(time.Second))
	}
	if waiting := sinceMicro(m.waiting.Load()); waiting > limit {
		return fmt.Errorf("heartbeats have not come back for %s: see whether lapse.heartbeat is in the publication lapse_ledger "+
			"(lapse init says so), or whether the slot has much to catch up with", waiting.Round(time.Second))
	}
	return nil
}

// sinceMicro is the time since an instant in Unix microseconds; 0 for the instant 0.
func sinceMicro(instant int64) time.Duration {
	if instant == 0 {
		return 0
	}
	return time.Since(time.UnixMicro(instant))
}
