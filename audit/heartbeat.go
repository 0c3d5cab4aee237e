package audit

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"lapse/audit/evidence"
	"lapse/schemas"
)

// startBeating writes a heartbeat when a stream is found to be fit, and each Config.BeatEvery, in its own time: a database
// that is slow to answer must not hold up the stream.
func (a *Auditor) startHeartbeats(ctx context.Context) (stop func()) {
	if a.config.WriteHeartbeat == nil {
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
			if place := a.server.Load(); place != nil {
				a.writeHeartbeat(ctx, place)
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func (a *Auditor) writeHeartbeat(ctx context.Context, place *Server) {
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	nonce, err := uuid.NewV7()
	if err == nil {
		err = a.config.WriteHeartbeat(ctx, nonce, *place)
	}
	if err != nil {
		a.log.Warn("heartbeat not written", "error", err)
		a.heartbeats.notWritten(time.Now())
		return
	}
	a.heartbeats.written(time.Now())
}

// pulse knows whether heartbeats come back, and what the last one found. Safe for concurrent use.
type heartbeatMonitor struct {
	unsent atomic.Int64           // since when no heartbeat could be written; Unix microseconds, 0 for not
	missed atomic.Int64           // since when heartbeats have been written and none was read; Unix microseconds, 0 for none
	fault  atomic.Pointer[string] // what the last one found changed in the publications; nil or empty for nothing
}

func (p *heartbeatMonitor) written(now time.Time) {
	p.unsent.Store(0)
	p.missed.CompareAndSwap(0, now.UnixMicro())
}

func (p *heartbeatMonitor) notWritten(now time.Time) { p.unsent.CompareAndSwap(0, now.UnixMicro()) }

// reset forgets what was written: another stream begins.
func (p *heartbeatMonitor) reset() {
	p.unsent.Store(0)
	p.missed.Store(0)
}

// read takes note of a heartbeat that came out of the stream.
func (p *heartbeatMonitor) received(h *evidence.Heartbeat) {
	p.missed.Store(0)
	p.fault.Store(&h.Fault)
}

// check says what is wrong: heartbeats that are written and not sent, for longer than patience, and publications that
// somebody else has changed.
func (p *heartbeatMonitor) check(patience time.Duration) error {
	if fault := p.fault.Load(); fault != nil && *fault != "" {
		return fmt.Errorf("what is published is not what Lapse published: %s: put it back, then run lapse init", *fault)
	}
	if since := sinceMicro(p.unsent.Load()); since > patience {
		return fmt.Errorf("heartbeats could not be written for %s, so that nothing is deleted: the log of the auditor says why",
			since.Round(time.Second))
	}
	if since := sinceMicro(p.missed.Load()); since > patience {
		return fmt.Errorf("heartbeats have not come back for %s: see whether lapse.heartbeat is in the publication lapse_ledger "+
			"(lapse init says so), or whether the slot has much to catch up with", since.Round(time.Second))
	}
	return nil
}

// sinceMicro is the time since an instant in Unix microseconds; 0 since none.
func sinceMicro(instant int64) time.Duration {
	if instant == 0 {
		return 0
	}
	return time.Since(time.UnixMicro(instant))
}

// Place is the database that a stream was found to be of, as a heartbeat names it.
type Server struct {
	History     schemas.History
	Timeline    schemas.Timeline
	ServerStart time.Time
}
