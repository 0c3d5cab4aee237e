package replication

import (
	"context"
	"errors"
	"io"
	"time"
)

// receive waits for bytes, and sends statuses while it does.
func (s *Stream) receive(ctx context.Context) error {
	now := time.Now()
	if err := s.tick(now); err != nil {
		return err
	}
	// Confirm may move the position from another goroutine at any time; look again after a tenth of the interval.
	until := s.status.due(s.report())
	if soon := now.Add(s.status.interval / 10); soon.Before(until) {
		until = soon
	}
	s.listens()
	err := s.wait(ctx, until)
	if err == nil && !time.Now().Before(until) {
		err = s.gone()
	}
	if err != nil && ctx.Err() == nil {
		return s.fail(err)
	}
	return err
}

// wait reads once, until the time given (zero: no limit) or until ctx ends. Nothing read by then is no error.
func (s *Stream) wait(ctx context.Context, until time.Time) error {
	s.watchContext(ctx)
	if err := s.wire.SetReadDeadline(until); err != nil {
		return err
	}
	// After the deadline, not before: a context that ended in between has kicked the wire already, to no effect.
	if err := ctx.Err(); err != nil {
		return err
	}
	switch err := s.wire.fill(); {
	case err == nil:
		s.heard()
		return nil
	case isTimeout(err):
		return ctx.Err()
	case errors.Is(err, io.EOF):
		return io.ErrUnexpectedEOF
	default:
		return err
	}
}

// watchContext has the end of ctx interrupt a read, at the price of nothing while the same context is used.
func (s *Stream) watchContext(ctx context.Context) {
	done := ctx.Done()
	if done == s.watched {
		return
	}
	s.unwatchContext()
	s.watched, s.unwatch = done, context.AfterFunc(ctx, s.wire.kick)
}

func (s *Stream) unwatchContext() {
	if s.unwatch != nil {
		s.unwatch()
	}
	s.watched, s.unwatch = nil, nil
}
