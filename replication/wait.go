package replication

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// quietWait is how long Wait waits before it looks at the connection at all. An acknowledgement nearly always
	// comes sooner.
	quietWait = 100 * time.Millisecond
	// lookAhead is how much Wait reads, and keeps, to see whether the server asks for something.
	lookAhead = 1 << 20
	// probePause is how often Wait looks at the server from outside once it can read no further.
	probePause = time.Second
)

// Wait is for the time when nothing can be taken from the stream because something behind it does not move. It waits
// until wake has something or is closed, sends statuses meanwhile, and delivers nothing.
//
// It returns ErrPressing when it learns that the server shuts down and waits for this stream: because it asked twice
// within 100 ms, or, when more data lies in between than Wait may keep, because it refuses other connections for that
// reason. The stream is still whole: who expects wake at any moment may call Wait again, who does not should Close, or
// the server cannot stop.
func (s *Stream) Wait(ctx context.Context, wake <-chan struct{}) error {
	if s.err != nil {
		return s.err
	}
	if err := s.tick(time.Now()); err != nil {
		return err
	}
	quiet := time.NewTimer(quietWait)
	defer quiet.Stop()
	select {
	case <-wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-quiet.C:
		return s.waitAttentively(ctx, wake)
	}
}

func (s *Stream) waitAttentively(ctx context.Context, wake <-chan struct{}) error {
	watch := watchWake(ctx, wake, s.wire.kick)
	err := s.readAhead(ctx, watch)
	// The watcher may have taken the wake-up at the last moment; it must not be lost.
	if watch.stop() && (err == nil || errors.Is(err, ErrPressing) || ctx.Err() != nil) {
		return nil
	}
	return err
}

func (s *Stream) readAhead(ctx context.Context, watch *wakeWatch) error {
	for {
		now := time.Now()
		if err := s.tick(now); err != nil {
			return err
		}
		until := s.status.due(s.report())
		if soon := now.Add(s.status.interval / 10); soon.Before(until) {
			until = soon
		}
		if !s.wire.room(lookAhead) {
			return s.waitBlind(ctx, watch)
		}
		if err := s.wire.SetReadDeadline(until); err != nil {
			return s.fail(err)
		}
		// After the deadline: what fired before has kicked the wire to no effect.
		if watch.woken() || ctx.Err() != nil {
			return ctx.Err()
		}
		if err := s.wire.fill(); err != nil && !isTimeout(err) {
			return s.fail(err)
		}
		pressing, err := s.note(time.Now())
		if err != nil {
			return s.fail(err)
		}
		if pressing {
			return ErrPressing
		}
	}
}

// note looks for requests in what has been received and not delivered. Each is noted once, here or by Next.
func (s *Stream) note(now time.Time) (pressing bool, err error) {
	s.noted = max(s.noted, s.wire.base+int64(s.wire.r))
	for {
		f, ok, err := s.wire.frameAt(s.noted)
		if err != nil || !ok {
			return pressing, err
		}
		s.noted = f.end
		const keepaliveSize = 1 + 8 + 8 + 1
		if f.kind == 'd' && len(f.body) == keepaliveSize && f.body[0] == 'k' && f.body[keepaliveSize-1] != 0 {
			pressing = s.status.asked(now) || pressing
		}
	}
}

// waitBlind waits when nothing more may be read. A request of the server, if there is one, stands behind data that it
// cannot even send. So ask from outside, by a connection that goes no further than the server's first word.
func (s *Stream) waitBlind(ctx context.Context, watch *wakeWatch) error {
	probe := startProbe(ctx, s.plain)
	defer probe.stop()
	for {
		now := time.Now()
		if err := s.tick(now); err != nil {
			return err
		}
		timer := time.NewTimer(min(s.status.interval/10, s.status.due(s.report()).Sub(now)))
		select {
		case <-watch.woke:
		case <-ctx.Done():
		case <-probe.stopping:
			timer.Stop()
			return ErrPressing
		case <-timer.C:
			continue
		}
		timer.Stop()
		return ctx.Err()
	}
}

// wakeWatch turns a channel into an interruption of a read.
type wakeWatch struct {
	woke, quit, done chan struct{}
}

func watchWake(ctx context.Context, wake <-chan struct{}, kick func()) *wakeWatch {
	w := &wakeWatch{woke: make(chan struct{}), quit: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		select {
		case <-wake:
			close(w.woke)
			kick()
		case <-ctx.Done():
			kick()
		case <-w.quit:
		}
	}()
	return w
}

func (w *wakeWatch) woken() bool {
	select {
	case <-w.woke:
		return true
	default:
		return false
	}
}

// stop ends the watch and reports whether it took a wake-up.
func (w *wakeWatch) stop() bool {
	close(w.quit)
	<-w.done
	return w.woken()
}

// probe asks every now and then whether a server still takes connections.
type probe struct {
	stopping chan struct{} // closed when the server says that it is shutting down
	cancel   context.CancelFunc
	done     chan struct{}
}

func startProbe(ctx context.Context, config *pgconn.Config) *probe {
	ctx, cancel := context.WithCancel(ctx)
	p := &probe{stopping: make(chan struct{}), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		pause := time.NewTicker(probePause)
		defer pause.Stop()
		for {
			select {
			case <-pause.C:
			case <-ctx.Done():
				return
			}
			if isShuttingDown(ctx, config) {
				close(p.stopping)
				return
			}
		}
	}()
	return p
}

func (p *probe) stop() {
	p.cancel()
	<-p.done
}

// isShuttingDown is true only if a server says so. It says "cannot connect now" while it starts too, but the caller has
// a stream from it.
func isShuttingDown(ctx context.Context, config *pgconn.Config) bool {
	ctx, cancel := context.WithTimeout(ctx, probePause)
	defer cancel()
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err == nil {
		_ = conn.Close(ctx)
		return false
	}
	return anyError(err, func(err error) bool {
		pg, ok := err.(*pgconn.PgError) //nolint:errorlint // anyError unwraps
		return ok && pg.Code == stateCannotConnectNow
	})
}

// anyError looks at every error in the tree: a connection string with several hosts gives one for each.
func anyError(err error, is func(error) bool) bool {
	if err == nil {
		return false
	}
	if is(err) {
		return true
	}
	switch e := err.(type) { //nolint:errorlint // this is the unwrapping
	case interface{ Unwrap() error }:
		return anyError(e.Unwrap(), is)
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			if anyError(inner, is) {
				return true
			}
		}
	}
	return false
}
