package replication

import (
	"context"
	"errors"
	"io"
	"time"
)

var (
	copyDone  = []byte{'c', 0, 0, 0, 4}
	terminate = []byte{'X', 0, 0, 0, 4}
)

// Close sends the server the confirmed position, ends the stream and closes the connection. What was received but not delivered is
// dropped; the slot keeps it. If it returns nil the slot is free. If the server does not answer within a second, or before ctx ends, the
// connection is closed nevertheless, and the slot is free as soon as the server notices. Closing a stream that has failed returns nil, and
// so does closing it twice.
func (s *Stream) Close(ctx context.Context) error {
	if s.err != nil {
		return nil
	}
	if err := s.sendStatus(time.Now()); err != nil {
		return err
	}
	err := s.wire.send(copyDone)
	if err == nil {
		err = s.drain(ctx)
	}
	_ = s.wire.send(terminate)
	_ = s.fail(errClosed)
	return err
}

// drain discards what the server still sends, until it ends the copy.
func (s *Stream) drain(ctx context.Context) error {
	until := time.Now().Add(closeWithin)
	for {
		f, ok, err := s.wire.frame()
		if err != nil {
			return err
		}
		if ok || f.size() > largeMessage {
			s.wire.skip(f)
			switch f.kind {
			case 'Z', 'C', 'E': // ready, complete, or an error: the slot is free in any case
				return nil
			}
			continue
		}
		if !time.Now().Before(until) {
			return errSlow
		}
		switch err := s.read(ctx, until, nil); {
		case errors.Is(err, io.ErrUnexpectedEOF):
			return nil // the server's process has ended, and the slot is free
		case err != nil:
			return err
		}
	}
}

var errSlow = errors.New("close stream: the server is still busy with a transaction; the slot is free when it notices")
