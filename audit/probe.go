package audit

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"lapse/replication"
)

// looks is when the server is looked at beside its stream, and when what is seen is too bad to be ready.
type probeLimits struct {
	every  time.Duration // between two
	timeout time.Duration // for one
	silent time.Duration // the stream was silent for longer: not ready
	unread time.Duration // something has not been read for longer: not ready
	blind  time.Duration // no look has succeeded for longer: not ready
	synchronousPause  time.Duration // before a stream is tried again that would be a synchronous standby
}

var defaultProbeLimits = probeLimits{
	every: 5 * time.Second, timeout: 5 * time.Second,
	silent: 30 * time.Second, unread: time.Minute, blind: time.Minute, synchronousPause: 30 * time.Second,
}

// sight is what is seen of the server beside a stream. The zero value sees nothing.
type probeState struct {
	stream atomic.Pointer[replication.Stream] // nil between two
	lastProbe atomic.Int64                       // Unix microseconds of the last look that succeeded, or of the first chance to
}

// attend looks at the server beside a stream, until end is called; both belong to the goroutine that has the stream. inner
// ends with ctx, and at once when the stream has become a synchronous standby: it must be closed then, or commits wait for
// Kafka. end returns the reason in place of the error that came of it.
func (a *Auditor) probeBeside(ctx context.Context, stream *replication.Stream) (inner context.Context, end func(error) error) {
	inner, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	a.probed.stream.Store(stream)
	a.probed.lastProbe.Store(time.Now().UnixMicro())
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

// lookOften looks until ctx ends, or the stream must be closed: the error says why. A look that fails is no reason; Ready
// says it after a while.
func (a *Auditor) probeRepeatedly(ctx context.Context, stream *replication.Stream) error {
	if a.config.Probe == nil {
		return nil
	}
	tick := time.NewTicker(a.probing.every)
	defer tick.Stop()
	var before error
	for {
		err := a.probe(ctx, stream)
		switch {
		case errors.Is(err, replication.ErrSynchronous):
			return err
		case err != nil && before == nil && ctx.Err() == nil:
			a.log.Warn("server not looked at beside its stream; trying again", "error", err)
		}
		before = err
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
	end, err := a.config.Probe(ctx, stream.ServerPID())
	if err != nil {
		return err
	}
	now := time.Now()
	a.probed.lastProbe.Store(now.UnixMicro())
	a.metrics.serverLag.observe(end, now)
	stream.Ask() // a server that has read on and sent nothing says so only when it is asked
	return nil
}

// seen is nil while the server is heard and read. Safe for concurrent use.
func (a *Auditor) checkServer(now time.Time) error {
	stream := a.probed.stream.Load()
	if stream == nil {
		return nil
	}
	if idle := stream.Idle(); idle > a.probing.silent {
		return fmt.Errorf("PostgreSQL has sent nothing for %s, though asked (at most %s): its walsender %d may be stopped or cut off",
			idle.Round(time.Second), a.probing.silent, stream.ServerPID())
	}
	if lag := a.metrics.serverLag.lag(now); lag > a.probing.unread {
		return fmt.Errorf("what PostgreSQL wrote %s ago has not been read (at most %s)", lag.Round(time.Second), a.probing.unread)
	}
	if blind := now.Sub(time.UnixMicro(a.probed.lastProbe.Load())); a.config.Probe != nil && blind > a.probing.blind {
		return fmt.Errorf("PostgreSQL has not answered beside the stream for %s (at most %s)", blind.Round(time.Second), a.probing.blind)
	}
	return nil
}

// pauseAfter is the pause before a stream is opened again: a longer one where a person has to change a setting first.
func (a *Auditor) pauseAfter(err error, usual time.Duration) time.Duration {
	if errors.Is(err, replication.ErrSynchronous) {
		return max(usual, a.probing.synchronousPause)
	}
	return usual
}
