package replication

import (
	"context"
	"errors"
	"io"
	"time"
)

// receive waits for bytes, and sends statuses meanwhile. It returns nil without bytes if a status is due.
func (s *Stream) receive(ctx context.Context) error {
	now := time.Now()
	if err := s.tick(now); err != nil {
		return err
	}
	s.beforeRead()
	return s.receiveUntil(ctx, s.tickAt(now), s.wakeups)
}

// receiveUntil is read, except that errors end the stream.
func (s *Stream) receiveUntil(ctx context.Context, until time.Time, wake <-chan struct{}) error {
	err := s.read(ctx, until, wake)
	if err == nil && !time.Now().Before(until) {
		err = s.checkAnswer()
	}
	if err == nil || ctx.Err() != nil || errors.Is(err, ErrWoken) {
		return err
	}
	return s.fail(err)
}

// read reads once, until the given time, until wake receives, or until ctx ends. It is no error if nothing was read by then, or if the read was
// interrupted without reason.
func (s *Stream) read(ctx context.Context, until time.Time, wake <-chan struct{}) error {
	s.watchContext(ctx)
	if err := s.wire.SetReadDeadline(until); err != nil {
		return err
	}
	// After the deadline is set, not before: a context that ended in between interrupted the wire too early.
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-wake:
		return ErrWoken
	default:
	}
	before := s.wire.end()
	switch err := s.wire.fill(); {
	case err == nil:
		s.received()
		if s.counts != nil {
			s.counts(int(s.wire.end() - before))
		}
		return nil
	case isTimeout(err):
		return ctx.Err()
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	default:
		return err
	}
}

// watchContext makes the end of ctx interrupt a read. It costs nothing while the same context is used.
func (s *Stream) watchContext(ctx context.Context) {
	done := ctx.Done()
	if done == s.watched {
		return
	}
	s.unwatchContext()
	s.watched, s.unwatch = done, context.AfterFunc(ctx, s.wire.interrupt)
}

func (s *Stream) unwatchContext() {
	if s.unwatch != nil {
		s.unwatch()
	}
	s.watched, s.unwatch = nil, nil
}
