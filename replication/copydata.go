package replication

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"lapse/schemas"
)

// headOrWhole decides about a large message as soon as its head has arrived: either it is buffered until it is complete, or its head is delivered
// and the rest is discarded on arrival. Only length and head decide, however much has arrived, so a transaction that is sent again gives the
// same changes.
func (s *Stream) headOrWhole(f frame, whole bool) (frame, bool, error) {
	const head = dataHeader + changeHead
	switch {
	case len(f.body) < head:
		return f, false, nil
	case f.kind == 'd' && f.body[0] == pglogrepl.XLogDataByteID && !s.decoder.wants(f.body[dataHeader:head], f.size()):
		f.body, f.headOnly = f.body[:head:head], true
		return f, true, nil
	case f.size() > maxBuffered:
		return f, false, &decodeError{Type: cmp.Or(f.messageType(true), f.kind), Length: int(f.size()), Reason: errTooLong}
	default:
		return f, whole, nil
	}
}

// messageType is the type of pgoutput's message in a frame; zero if there is none: a keepalive, a notice or the like may come between any two of
// pgoutput's messages.
func (f frame) messageType(ok bool) byte {
	if !ok || f.kind != 'd' || len(f.body) <= dataHeader || f.body[0] != pglogrepl.XLogDataByteID {
		return 0
	}
	return f.body[dataHeader]
}

// dataHeader is the header before pgoutput's message: the type XLogData, start, end and time.
const dataHeader = 1 + 3*8

// handle reads one frame. It returns nil if there is nothing to deliver.
func (s *Stream) handle(f frame) (*Message, error) {
	switch f.kind {
	case 'd':
		c := cursor{rest: f.body}
		switch kind := c.byte(); kind {
		case pglogrepl.XLogDataByteID:
			return s.data(&c, f.headOnly)
		case pglogrepl.PrimaryKeepaliveMessageByteID:
			return s.takeKeepalive(&c, f)
		default:
			return nil, s.fail(&decodeError{Type: kind, Length: len(f.body), Reason: errUnknownType})
		}
	case 'S': // a parameter changed
		return nil, nil
	case 'N':
		if err := s.notice(f.body); err != nil {
			return nil, s.fail(err)
		}
		return nil, nil
	case 'E':
		return nil, s.fail(s.streamError(serverError(f.body)))
	case 'c', 'C', 'Z':
		return nil, s.fail(errServerStopped)
	default:
		return nil, s.fail(&decodeError{Type: f.kind, Length: len(f.body), Reason: errUnknownType})
	}
}

// data decodes one message of the output plugin, or only its head.
func (s *Stream) data(c *cursor, headOnly bool) (*Message, error) {
	at := c.lsn()
	c.take(dataHeader - 9)
	if c.short {
		return nil, s.fail(&decodeError{Type: pglogrepl.XLogDataByteID, Length: len(c.rest), Reason: errShort})
	}
	var m *Message
	var err error
	if headOnly {
		m, err = s.decoder.decodeHead(c.rest)
	} else {
		m, err = s.decoder.decode(c.rest)
	}
	if err != nil {
		var kind byte
		if len(c.rest) > 0 {
			kind = c.rest[0]
		}
		return nil, s.fail(&decodeError{Type: kind, LSN: at, Length: len(c.rest), Reason: err})
	}
	if m != nil && m.Kind == KindCommit {
		s.sent = max(s.sent, m.Tx.EndLSN)
		s.stop.endTransaction()
	}
	return m, nil
}

// takeKeepalive reads a keepalive, and answers it.
func (s *Stream) takeKeepalive(c *cursor, f frame) (*Message, error) {
	end, _, ask := c.lsn(), c.uint64(), c.byte()
	if c.short || len(c.rest) > 0 {
		return nil, s.fail(&decodeError{Type: pglogrepl.PrimaryKeepaliveMessageByteID, Length: len(f.body), Reason: errShort})
	}
	s.keepalive = Message{Kind: KindKeepalive, Tx: s.decoder.tx, Open: s.decoder.open(), WALEnd: end, ReplyRequested: ask != 0}
	if !s.keepalive.Open {
		s.sent = max(s.sent, end)
	}
	if ask != 0 && f.start >= s.noted {
		now := time.Now()
		if s.keepalive.Stopping = s.status.asked(now); s.keepalive.Stopping {
			s.stop.signs.note(now)
		}
		if err := s.tick(now); err != nil {
			return nil, err
		}
	}
	return &s.keepalive, nil
}

// notice reads a notice. Since PostgreSQL 18, if a publication did not exist at the stream's position, the server only sends a warning, and omits
// the changes of its tables. Nothing else shows that.
func (s *Stream) notice(body []byte) error {
	var notice pgproto3.NoticeResponse
	if err := notice.Decode(body); err != nil {
		return &decodeError{Type: 'N', Length: len(body), Reason: errShort}
	}
	if warning := pgconn.ErrorResponseToPgError((*pgproto3.ErrorResponse)(&notice)); waitsForStandby(warning) {
		if !s.waited {
			s.log.Warn("the server holds changes back until a standby has them: start the standby, or take its slot out of synchronized_standby_slots",
				"slot", s.slot, "warning", warning.Message)
		}
		s.waited = true
		return nil
	} else if notice.SeverityUnlocalized == "WARNING" && notice.Code == schemas.SQLStateNotInPrerequisiteState {
		return publicationMissing(s.slot, warning)
	}
	s.log.Debug("notice from the server", "slot", s.slot, "severity", notice.SeverityUnlocalized, "sqlstate", notice.Code)
	return nil
}

// waitsForStandby reports whether PostgreSQL 17 or later says that it waits for a slot of synchronized_standby_slots: in a warning, or in an error if
// it stops meanwhile. It checks the name of the server's function, because the SQLSTATE has other meanings too, and the text is translated.
func waitsForStandby(err *pgconn.PgError) bool { return err.Routine == "StandbySlotsHaveCaughtup" }

func publicationMissing(slot string, cause error) error {
	return &PublicationError{
		Reason: errPublicationMissing,
		Fix:    "it was dropped, or is younger than the slot: make it again if need be, then " + fixLost(slot),
		cause:  cause,
	}
}

// streamError interprets an error of the server in the middle of the stream.
func (s *Stream) streamError(err error) error {
	if server := (*pgconn.PgError)(nil); errors.As(err, &server) && waitsForStandby(server) {
		return fmt.Errorf("%w, while it waited for a standby: %w", errServerStopped, err)
	}
	switch schemas.StateOf(err) {
	case schemas.SQLStateUndefinedObject:
		return publicationMissing(s.slot, err)
	case schemas.SQLStateNotInPrerequisiteState, schemas.SQLStateUndefinedFile:
		return &SlotError{
			Slot: s.slot, Reason: ErrSlotLost, Detail: err.Error(),
			Fix: fixLost(s.slot),
		}
	case schemas.SQLStateProgramLimitExceeded, schemas.SQLStateInternalError:
		// PostgreSQL reports a row that it cannot send by these SQLSTATEs, among other things.
		return fmt.Errorf("read slot %q: %w; if that is about a length or a request size, a deleted row is longer than PostgreSQL can send: see docs/limits.md",
			s.slot, &redactedError{err})
	default:
		return fmt.Errorf("read slot %q: %w", s.slot, &redactedError{err})
	}
}
