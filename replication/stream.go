package replication

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"lapse/schemas"
)

// Stream reads one slot. All methods but Confirm, Silent and Ask belong to one goroutine, which must call Next, Wait or
// Flush at least once in the server's wal_sender_timeout (40 s at most), or the server ends the stream.
//
// The first error is the last: the connection is closed with it, and every later call returns it again. A context that
// ends is no such error; the stream can go on with another.
type Stream struct {
	wire    *wire
	plain   *pgconn.Config // for the look at the server from outside
	slot    string
	pid     uint32
	log     *slog.Logger
	decoder *decoder

	identity  Identity
	startedAt schemas.LSN

	confirmed atomic.Uint64 // durable position
	seen      schemas.LSN   // no position beyond it is told to the server
	status    statuses
	scratch   []byte // status being built

	senderTimeout time.Duration // of the server, for this session
	silence       silence
	heardAt       atomic.Int64 // last byte from the server, since silence.began
	asking        atomic.Bool  // see Ask
	outside       outside

	keepalive Message
	noted     int64 // position in the connection up to which Wait has answered requests
	count     uint8 // messages since the clock was looked at

	watched <-chan struct{} // of the context that interrupts reads
	unwatch func() bool
	err     error
}

// Identity says which database this is.
func (s *Stream) Identity() Identity { return s.identity }

// StartedAt is the slot's confirmed position when it was opened. Everything that ends above it will be delivered.
func (s *Stream) StartedAt() schemas.LSN { return s.startedAt }

// SetHistory says to which history of the database the transactions belong that are delivered from here on. Call it
// between transactions.
func (s *Stream) SetHistory(history schemas.History) { s.decoder.history = history }

// ServerPID is the server process that serves this stream.
func (s *Stream) ServerPID() uint32 { return s.pid }

// Confirm says that everything that ends at or below the position is durable elsewhere and need never be sent again.
// Positions only go forward; lower ones are ignored. It may be called from any goroutine. The server learns of it with
// the next status: from Next and Wait within a tenth of the status interval, from Flush at once. The server's own copy
// of it may be older after it crashed.
//
// For a transaction the position is its EndLSN: the commit's own position would have it sent again. For a keepalive
// it is WALEnd, and only while no transaction is open or on its way.
func (s *Stream) Confirm(position schemas.LSN) {
	for {
		was := s.confirmed.Load()
		if uint64(position) <= was || s.confirmed.CompareAndSwap(was, uint64(position)) {
			return
		}
	}
}

// Confirmed is the highest position that was confirmed, or StartedAt.
func (s *Stream) Confirmed() schemas.LSN { return schemas.LSN(s.confirmed.Load()) }

// Flush tells the server the confirmed position now.
func (s *Stream) Flush(ctx context.Context) error {
	switch {
	case s.err != nil:
		return s.err
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return s.sendStatus(time.Now())
	}
}

// Next returns the next message. It waits for one as long as it takes, sends statuses meanwhile, and answers a server
// that asks for one, always with the confirmed position. A context that ends interrupts it at once and costs nothing:
// the next call goes on where this one stopped.
//
// The message and its bytes are valid until the next call.
func (s *Stream) Next(ctx context.Context) (*Message, error) {
	if s.err != nil {
		return nil, s.err
	}
	// Looking at the clock and at the context costs more than decoding a row.
	if s.count++; s.count == 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		now := time.Now()
		if err := s.tick(now); err != nil {
			return nil, err
		}
		if m := s.press(now); m != nil {
			return m, nil
		}
	}
	for {
		f, ok, err := s.wire.frame()
		if err == nil && f.size() > largeMessage {
			f, ok, err = s.cut(f, ok)
		}
		if err != nil {
			return nil, s.fail(err)
		}
		if m := s.decoder.pending(f.inner(ok)); m != nil {
			return m, nil
		}
		if !ok {
			if err := s.receive(ctx); err != nil {
				return nil, err
			}
			if m := s.press(time.Now()); m != nil {
				return m, nil
			}
			continue
		}
		s.wire.skip(f)
		if m, err := s.handle(f); m != nil || err != nil {
			return m, err
		}
	}
}

// cut decides about a large message as soon as its head is there: it is buffered until it is whole, or delivered by its
// head, and the rest of it thrown away as it comes. Length and head alone decide, however much has been received, so that
// a transaction that is sent again gives the same changes.
func (s *Stream) cut(f frame, whole bool) (frame, bool, error) {
	const head = dataHeader + changeHead
	switch {
	case len(f.body) < head:
		return f, false, nil
	case f.kind == 'd' && f.body[0] == 'w' && !s.decoder.wants(f.body[dataHeader:head], f.size()):
		f.body, f.cut = f.body[:head:head], true
		return f, true, nil
	case f.size() > maxBuffered:
		return f, false, &DecodeError{Type: f.inner(true), Length: int(f.size()), Reason: errTooLong}
	default:
		return f, whole, nil
	}
}

// inner is the type of the message inside a frame: pgoutput's letter, or that of the frame itself; zero if there is no
// frame.
func (f frame) inner(ok bool) byte {
	switch {
	case !ok:
		return 0
	case f.kind == 'd' && len(f.body) > dataHeader && f.body[0] == 'w':
		return f.body[dataHeader]
	default:
		return f.kind
	}
}

// dataHeader is what stands before pgoutput's message: 'w', start, end and time.
const dataHeader = 1 + 3*8

// handle takes one frame apart. It returns nil if there is nothing to deliver.
func (s *Stream) handle(f frame) (*Message, error) {
	switch f.kind {
	case 'd':
		c := cursor{rest: f.body}
		switch kind := c.byte(); kind {
		case 'w':
			return s.data(&c, f.cut)
		case 'k':
			return s.alive(&c, f)
		default:
			return nil, s.fail(&DecodeError{Type: kind, Length: len(f.body), Reason: errUnknownType})
		}
	case 'S': // a parameter changed
		return nil, nil
	case 'N':
		if err := s.notice(f.body); err != nil {
			return nil, s.fail(err)
		}
		return nil, nil
	case 'E':
		return nil, s.fail(s.broken(serverError(f.body)))
	case 'c', 'C', 'Z':
		return nil, s.fail(ErrServerStopped)
	default:
		return nil, s.fail(&DecodeError{Type: f.kind, Length: len(f.body), Reason: errUnknownType})
	}
}

// data decodes one message of the output plugin, or no more than the head of it.
func (s *Stream) data(c *cursor, cut bool) (*Message, error) {
	at := c.lsn()
	c.take(dataHeader - 9)
	if c.short {
		return nil, s.fail(&DecodeError{Type: 'w', Length: len(c.rest), Reason: errShort})
	}
	var m *Message
	var err error
	if cut {
		m, err = s.decoder.decodeHead(c.rest)
	} else {
		m, err = s.decoder.decode(c.rest)
	}
	if err != nil {
		var kind byte
		if len(c.rest) > 0 {
			kind = c.rest[0]
		}
		return nil, s.fail(&DecodeError{Type: kind, LSN: at, Length: len(c.rest), Reason: err})
	}
	if m != nil && m.Kind == KindCommit {
		s.seen = max(s.seen, m.Tx.EndLSN)
		s.outside.end()
	}
	return m, nil
}

// alive handles a keepalive.
func (s *Stream) alive(c *cursor, f frame) (*Message, error) {
	end, _, ask := c.lsn(), c.uint64(), c.byte()
	if c.short || len(c.rest) > 0 {
		return nil, s.fail(&DecodeError{Type: 'k', Length: len(f.body), Reason: errShort})
	}
	s.keepalive = Message{Kind: KindKeepalive, Tx: s.decoder.tx, Open: s.decoder.open(), WALEnd: end, ReplyRequested: ask != 0}
	if !s.keepalive.Open {
		s.seen = max(s.seen, end)
	}
	if ask != 0 && f.start >= s.noted {
		now := time.Now()
		s.keepalive.Pressing = s.status.asked(now)
		if err := s.tick(now); err != nil {
			return nil, err
		}
	}
	return &s.keepalive, nil
}

// notice reads a notice. Since PostgreSQL 18 a publication that is missing where the stream stands is no error but a
// warning, and the changes of its tables are left out. Nothing else says so.
func (s *Stream) notice(body []byte) error {
	var notice pgproto3.NoticeResponse
	if err := notice.Decode(body); err != nil {
		return &DecodeError{Type: 'N', Length: len(body), Reason: errShort}
	}
	if notice.SeverityUnlocalized == "WARNING" && notice.Code == schemas.SQLStateNotInPrerequisiteState {
		return publicationGone(s.slot, pgconn.ErrorResponseToPgError((*pgproto3.ErrorResponse)(&notice)))
	}
	s.log.Debug("notice from the server", "slot", s.slot, "severity", notice.SeverityUnlocalized, "sqlstate", notice.Code)
	return nil
}

func publicationGone(slot string, cause error) error {
	return &PublicationError{
		Reason: ErrPublicationMissing,
		Fix:    "it was dropped, or is younger than the slot: make it again if need be, then " + fixLost(slot),
		cause:  cause,
	}
}

// broken gives an error in the middle of the stream a name.
func (s *Stream) broken(err error) error {
	switch schemas.StateOf(err) {
	case schemas.SQLStateUndefinedObject:
		return publicationGone(s.slot, err)
	case schemas.SQLStateNotInPrerequisiteState, schemas.SQLStateUndefinedFile:
		return &SlotError{
			Slot: s.slot, Reason: ErrSlotLost, Detail: err.Error(),
			Fix: fixLost(s.slot),
		}
	case schemas.SQLStateProgramLimitExceeded, schemas.SQLStateInternalError:
		// What PostgreSQL says of a row that it cannot send, among other things.
		return fmt.Errorf("read slot %q: %w; if that is about a length or a request size, a deleted row is longer than PostgreSQL can send: see docs/limits.md",
			s.slot, &quietError{err})
	default:
		return fmt.Errorf("read slot %q: %w", s.slot, &quietError{err})
	}
}

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

// fail ends the stream. The socket is closed here and not in Close, so that a server which shuts down does not wait
// for a reader that has given up.
func (s *Stream) fail(err error) error {
	if s.err != nil {
		return s.err
	}
	s.err = err
	s.unwatchContext()
	s.outside.end()
	_ = s.wire.Close()
	return err
}
