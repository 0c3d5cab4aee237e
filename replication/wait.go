package replication

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pglogrepl"
)

const (
	// beforeReading is how long Wait waits before it reads at all. The caller's wait nearly always ends sooner.
	beforeReading = 100 * time.Millisecond
	// lookAhead is how much Wait reads, and keeps, to see whether the server asks for something.
	lookAhead = 1 << 20
)

// Wait is for the time when nothing can be taken from the stream because its consumer is stalled. It waits for Wake, sends statuses
// meanwhile, and delivers nothing. Then it returns ErrWoken.
//
// It returns ErrStopping if the server shuts down and waits for this stream, and again every 250 ms while that lasts. The stream stays
// intact: CheckStop says whether the caller may continue to wait.
func (s *Stream) Wait(ctx context.Context) error {
	return s.waitFor(ctx, s.wakeups, &s.stop.signs)
}

// During runs work in a goroutine of its own and answers the server until work returns. It returns work's result. If the stream fails, ctx
// ends, or the server can wait no longer, it cancels work's context, waits until work has returned, and returns that error instead. work
// must not use the stream. A Wake is left for the next call.
func (s *Stream) During(ctx context.Context, work func(ctx context.Context) error) error {
	if s.err != nil {
		return s.err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	began, done := time.Now(), make(chan struct{})
	var result error
	go func() {
		defer s.wire.interrupt() // after done is closed
		defer close(done)
		result = work(ctx)
	}()
	var signs stopSigns
	for {
		err := s.waitFor(ctx, done, &signs)
		if errors.Is(err, ErrStopping) {
			now := time.Now()
			err = signs.check(now, now.Sub(began))
		}
		select {
		case <-done:
			return result
		default:
		}
		if err != nil {
			cancel()
			<-done
			return err
		}
	}
}

// waitFor waits until wake receives or is closed. The sender must interrupt the wire afterwards.
func (s *Stream) waitFor(ctx context.Context, wake <-chan struct{}, signs *stopSigns) error {
	if s.err != nil {
		return s.err
	}
	now := time.Now()
	if err := s.tick(now); err != nil {
		return err
	}
	if s.stopSeen(now) {
		signs.note(now)
		return ErrStopping
	}
	repeat := signs.repeatAt(now)
	quiet := time.NewTimer(beforeReading)
	defer quiet.Stop()
	select {
	case <-wake:
		return ErrWoken
	case <-ctx.Done():
		return ctx.Err()
	case <-quiet.C:
	}
	switch stopping, err := s.readAhead(ctx, wake, repeat); {
	case err != nil:
		return err
	case stopping:
		signs.note(time.Now())
	}
	return ErrStopping
}

// readAhead waits until wake receives, the server shows that it shuts down, or repeat (if not zero) has come. stopping is true for the
// second. It keeps what it reads for Next.
func (s *Stream) readAhead(ctx context.Context, wake <-chan struct{}, repeat time.Time) (stopping bool, err error) {
	for {
		now := time.Now()
		if err := s.tick(now); err != nil {
			return false, err
		}
		if s.stopSeen(now) {
			return true, nil
		}
		if !repeat.IsZero() && !now.Before(repeat) {
			return false, nil
		}
		s.beforeRead()
		if !s.wire.room(lookAhead) {
			return s.waitProbing(ctx, wake, repeat)
		}
		until := earlier(s.tickAt(now), repeat)
		if err := s.receiveUntil(ctx, until, wake); err != nil {
			return false, err
		}
		if stopping, err := s.noteRequests(time.Now()); err != nil || stopping {
			return stopping, err
		}
	}
}

// earlier returns at, or limit if that is sooner and not zero.
func earlier(at, limit time.Time) time.Time {
	if !limit.IsZero() && limit.Before(at) {
		return limit
	}
	return at
}

// noteRequests looks for requests in received, undelivered messages. Each is counted once, here or by Next.
func (s *Stream) noteRequests(now time.Time) (stopping bool, err error) {
	s.noted = max(s.noted, s.wire.base+int64(s.wire.r))
	for {
		f, ok, err := s.wire.frameAt(s.noted)
		if err != nil {
			return false, s.fail(err)
		}
		if !ok {
			return stopping, nil
		}
		s.noted = f.end
		const keepaliveSize = 1 + 8 + 8 + 1
		if f.kind == 'd' && len(f.body) == keepaliveSize && f.body[0] == pglogrepl.PrimaryKeepaliveMessageByteID &&
			f.body[keepaliveSize-1] != 0 {
			stopping = s.status.asked(now) || stopping
		}
	}
}

// waitProbing is readAhead for the time when no more may be read. A request of the server would come after data that it cannot even send,
// so the server is probed.
func (s *Stream) waitProbing(ctx context.Context, wake <-chan struct{}, repeat time.Time) (stopping bool, err error) {
	p := s.stop.probe
	if p == nil {
		p = startProbe(ctx, s.plain, probeEvery, nil)
		defer p.end()
	}
	for {
		now := time.Now()
		s.received() // a server whose messages are not read need not answer
		if err := s.tick(now); err != nil {
			return false, err
		}
		if !repeat.IsZero() && !now.Before(repeat) {
			return false, nil
		}
		timer := time.NewTimer(earlier(s.tickAt(now), repeat).Sub(now))
		select {
		case <-wake:
			err = ErrWoken
		case <-ctx.Done():
			err = ctx.Err()
		case <-s.stop.foundBy(p, now):
			s.stop.toldAt, stopping = now, true
		case <-timer.C:
			continue
		}
		timer.Stop()
		return stopping, err
	}
}
