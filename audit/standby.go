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
type looks struct {
	every  time.Duration // between two
	atMost time.Duration // for one
	silent time.Duration // the stream was silent for longer: not ready
	unread time.Duration // something has not been read for longer: not ready
	blind  time.Duration // no look has succeeded for longer: not ready
	again  time.Duration // before a stream is tried again that would be a synchronous standby
}

var defaultLooks = looks{
	every: 5 * time.Second, atMost: 5 * time.Second,
	silent: 30 * time.Second, unread: time.Minute, blind: time.Minute, again: 30 * time.Second,
}

// sight is what is seen of the server beside a stream. The zero value sees nothing.
type sight struct {
	stream atomic.Pointer[replication.Stream] // nil between two
	looked atomic.Int64                       // Unix microseconds of the last look that succeeded, or of the first chance to
}

// attend looks at the server beside a stream, until end is called; both belong to the goroutine that has the stream. inner
// ends with ctx, and at once when the stream has become a synchronous standby: it must be closed then, or commits wait for
// Kafka. end returns the reason in place of the error that came of it.
func (a *Auditor) attend(ctx context.Context, stream *replication.Stream) (inner context.Context, end func(error) error) {
	inner, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	a.sight.stream.Store(stream)
	a.sight.looked.Store(time.Now().UnixMicro())
	go func() {
		defer close(done)
		if err := a.lookOften(inner, stream); err != nil {
			cancel(err)
		}
	}()
	return inner, func(err error) error {
		a.sight.stream.Store(nil)
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
func (a *Auditor) lookOften(ctx context.Context, stream *replication.Stream) error {
	if a.config.Look == nil {
		return nil
	}
	tick := time.NewTicker(a.looks.every)
	defer tick.Stop()
	var before error
	for {
		err := a.look(ctx, stream)
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

func (a *Auditor) look(ctx context.Context, stream *replication.Stream) error {
	ctx, cancel := context.WithTimeout(ctx, a.looks.atMost)
	defer cancel()
	end, err := a.config.Look(ctx, stream.ServerPID())
	if err != nil {
		return err
	}
	now := time.Now()
	a.sight.looked.Store(now.UnixMicro())
	a.metrics.unread.see(end, now)
	stream.Ask() // a server that has read on and sent nothing says so only when it is asked
	return nil
}

// seen is nil while the server is heard and read. Safe for concurrent use.
func (a *Auditor) seen(now time.Time) error {
	stream := a.sight.stream.Load()
	if stream == nil {
		return nil
	}
	if idle := stream.Idle(); idle > a.looks.silent {
		return fmt.Errorf("PostgreSQL has sent nothing for %s, though asked (at most %s): its walsender %d may be stopped or cut off",
			idle.Round(time.Second), a.looks.silent, stream.ServerPID())
	}
	if lag := a.metrics.unread.lag(now); lag > a.looks.unread {
		return fmt.Errorf("what PostgreSQL wrote %s ago has not been read (at most %s)", lag.Round(time.Second), a.looks.unread)
	}
	if blind := now.Sub(time.UnixMicro(a.sight.looked.Load())); a.config.Look != nil && blind > a.looks.blind {
		return fmt.Errorf("PostgreSQL has not answered beside the stream for %s (at most %s)", blind.Round(time.Second), a.looks.blind)
	}
	return nil
}

// pauseAfter is the pause before a stream is opened again: a longer one where a person has to change a setting first.
func (a *Auditor) pauseAfter(err error, usual time.Duration) time.Duration {
	if errors.Is(err, replication.ErrSynchronous) {
		return max(usual, a.looks.again)
	}
	return usual
}
