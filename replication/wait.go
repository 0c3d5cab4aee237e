package replication

import (
	"context"
	"errors"
	"time"
)

const (
	// quietWait is how long Wait waits before it looks at the connection at all. An acknowledgement nearly always
	// comes sooner.
	quietWait = 100 * time.Millisecond
	// lookAhead is how much Wait reads, and keeps, to see whether the server asks for something.
	lookAhead = 1 << 20
)

// Wait is for the time when nothing can be taken from the stream because something behind it does not move. It waits
// until wake has something or is closed, sends statuses meanwhile, and delivers nothing.
//
// It returns ErrPressing when it learns that the server shuts down and waits for this stream: because it asked twice
// within 100 ms, or, when more data lies in between than Wait may keep or a transaction has been open for more than a
// second, because it refuses other connections for that reason. The stream is still whole: who expects wake at any moment may call Wait again, who does not should Close, or
// the server cannot stop.
func (s *Stream) Wait(ctx context.Context, wake <-chan struct{}) error {
	if s.err != nil {
		return s.err
	}
	now := time.Now()
	if err := s.tick(now); err != nil {
		return err
	}
	if s.pressed(now) {
		return ErrPressing
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
		if s.pressed(now) {
			return ErrPressing
		}
		s.listens()
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
		if err := s.listen(until); err != nil {
			return err
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

// listen reads once, and ends a stream that has been silent for too long.
func (s *Stream) listen(until time.Time) error {
	switch err := s.wire.fill(); {
	case err == nil:
		s.heard()
	case !isTimeout(err):
		return s.fail(err)
	case !time.Now().Before(until): // and not one that was kicked: it may not have read
		if err := s.gone(); err != nil {
			return s.fail(err)
		}
	}
	return nil
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
	probe := s.outside.probe
	if probe == nil {
		probe = startProbe(ctx, s.plain, probePause, nil)
		defer probe.stop()
	}
	for {
		now := time.Now()
		s.heard() // there is no silence where nobody listens
		if err := s.tick(now); err != nil {
			return err
		}
		timer := time.NewTimer(min(s.status.interval/10, s.status.due(s.report()).Sub(now)))
		select {
		case <-watch.woke:
		case <-ctx.Done():
		case <-s.unlessTold(probe):
			timer.Stop()
			s.outside.told = now
			return ErrPressing
		case <-timer.C:
			continue
		}
		timer.Stop()
		return ctx.Err()
	}
}

// unlessTold is closed when the server shuts down and the caller was not told of it a moment ago.
func (s *Stream) unlessTold(p *probe) <-chan struct{} {
	if time.Since(s.outside.told) < pressAgain {
		return nil
	}
	return p.stopping
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
