package audit

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"lapse/replication"
)

// probeLimits says how often the server is probed apart from its stream, and when the auditor is not ready.
type probeLimits struct {
	every   time.Duration // between two probes
	timeout time.Duration // of one probe

	silent time.Duration // not ready: the stream has sent nothing for longer
	unread time.Duration // not ready: something has not been read for longer
	failed time.Duration // not ready: no probe has succeeded for longer

	synchronousPause time.Duration // pause before the stream is opened again after it was a synchronous standby
}

var defaultProbeLimits = probeLimits{
	every: 5 * time.Second, timeout: 5 * time.Second,
	silent: 30 * time.Second, unread: time.Minute, failed: time.Minute, synchronousPause: 30 * time.Second,
}

// probeState is what Ready knows about the server. The zero value knows nothing.
type probeState struct {
	stream      atomic.Pointer[replication.Stream] // nil while no stream is open
	lastSuccess atomic.Int64                       // of a probe, or when the stream was opened; Unix microseconds
}

// probeBeside probes the server while a stream is open, until end is called. The goroutine that owns the stream calls both.
//
// inner ends with ctx, or at once if the stream has become a synchronous standby, because commits would then wait for Kafka. end then returns that
// reason instead of the resulting error.
func (a *Auditor) probeBeside(ctx context.Context, stream *replication.Stream) (inner context.Context, end func(error) error) {
	inner, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	a.probed.stream.Store(stream)
	a.probed.lastSuccess.Store(time.Now().UnixMicro())
	go func() {
		defer close(done)
		if err := a.probeRepeatedly(inner, stream); err != nil {
			cancel(err)
		}
	}()
	return inner, func(err error) error {
		a.probed.stream.Store(nil)
		reason := context.Cause(inner)
		cancel(nil)
		<-done
		if ctx.Err() == nil && errors.Is(reason, replication.ErrSynchronous) {
			return reason
		}
		return err
	}
}

// probeRepeatedly probes until ctx ends. It returns an error if the stream must be closed. A probe that fails is logged, and after a while Ready
// reports it.
func (a *Auditor) probeRepeatedly(ctx context.Context, stream *replication.Stream) error {
	if a.config.asks.probe == nil {
		return nil
	}
	tick := time.NewTicker(a.probing.every)
	defer tick.Stop()
	failing := false
	for {
		err := a.probe(ctx, stream)
		if errors.Is(err, replication.ErrSynchronous) {
			return err
		}
		if err != nil && !failing && ctx.Err() == nil {
			a.log.Warn("server not probed beside its stream; trying again", "error", err)
		}
		failing = err != nil
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (a *Auditor) probe(ctx context.Context, stream *replication.Stream) error {
	ctx, cancel := context.WithTimeout(ctx, a.probing.timeout)
	defer cancel()
	end, err := a.config.asks.probe(ctx, stream.ServerPID())
	if err != nil {
		return err
	}
	now := time.Now()
	a.probed.lastSuccess.Store(now.UnixMicro())
	a.metrics.serverLag.observe(end, now)
	stream.Ask() // an idle server says how far it has read only if it is asked
	return nil
}

// checkServer returns nil while the server sends, its log is read, and it answers probes. Safe for concurrent use.
func (a *Auditor) checkServer(now time.Time) error {
	stream := a.probed.stream.Load()
	if stream == nil {
		return nil
	}
	if silent := stream.Idle(); silent > a.probing.silent {
		return fmt.Errorf("PostgreSQL has sent nothing for %s, though asked (at most %s): its walsender %d may be stopped or cut off",
			silent.Round(time.Second), a.probing.silent, stream.ServerPID())
	}
	if lag := a.metrics.serverLag.lag(now); lag > a.probing.unread {
		return fmt.Errorf("what PostgreSQL wrote %s ago has not been read (at most %s)", lag.Round(time.Second), a.probing.unread)
	}
	if failed := now.Sub(time.UnixMicro(a.probed.lastSuccess.Load())); a.config.asks.probe != nil && failed > a.probing.failed {
		return fmt.Errorf("PostgreSQL has not answered beside the stream for %s (at most %s)", failed.Round(time.Second), a.probing.failed)
	}
	return nil
}

// pauseAfter returns the pause before the next take-over: longer if a person must change a setting first.
func (a *Auditor) pauseAfter(err error, usual time.Duration) time.Duration {
	if errors.Is(err, replication.ErrSynchronous) {
		return max(usual, a.probing.synchronousPause)
	}
	return usual
}
