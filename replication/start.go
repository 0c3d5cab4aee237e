package replication

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"lapse/schemas"
)

// startCommand asks for protocol 1, in text, without emitted messages (any role can emit one, of any size) and without
// transactions in progress: the server puts them together, so one of any size passes through in constant memory.
func startCommand(config StreamConfig) string {
	names := make([]string, len(config.Publications))
	for i, name := range config.Publications {
		names[i] = schemas.Identifier(name)
	}
	return fmt.Sprintf("START_REPLICATION SLOT %s LOGICAL 0/0 (proto_version '1', publication_names %s, "+
		"messages 'false', binary 'false', streaming 'false')",
		schemas.Identifier(config.Slot), quoteLiteral(strings.Join(names, ",")))
}

// start sends the command and waits until the server streams.
func (s *Stream) start(ctx context.Context, command string) error {
	defer s.unwatchContext()
	query, err := (&pgproto3.Query{String: command}).Encode(nil)
	if err != nil {
		return err
	}
	if err := s.wire.send(query); err != nil {
		return fmt.Errorf("start replication: %w", err)
	}
	for {
		f, ok, err := s.wire.frame()
		if err != nil {
			return fmt.Errorf("start replication: %w", err)
		}
		if !ok {
			if err := s.read(ctx, time.Time{}, nil); err != nil {
				return fmt.Errorf("start replication: %w", err)
			}
			continue
		}
		s.wire.skip(f)
		switch f.kind {
		case 'W': // CopyBothResponse
			return nil
		case 'E':
			return s.refused(serverError(f.body))
		case 'S':
		case 'N':
			if err := s.notice(f.body); err != nil {
				return err
			}
		default:
			return &DecodeError{Type: f.kind, Length: len(f.body), Reason: errUnknownType}
		}
	}
}

const fixActive = "one slot serves one stream; the other one must end first"

// fixMissing says how to go on without the slot.
const fixMissing = "run lapse init --new-slot: the topics stay, and what was deleted in between is a gap in them"

// fixLost says how to go on with another slot.
func fixLost(slot string) string {
	return fmt.Sprintf("select pg_drop_replication_slot(%s), then %s", quoteLiteral(slot), fixMissing)
}

// refused gives the server's answer to START_REPLICATION a name. The slot was looked at a moment ago: it was there,
// and it was ours.
func (s *Stream) refused(err error) error {
	refuse := func(reason error, fix string) error {
		detail := ""
		var pg *pgconn.PgError
		if errors.As(err, &pg) {
			detail = pg.Message
		}
		return &SlotError{Slot: s.slot, Reason: reason, Detail: detail, Fix: fix}
	}
	switch schemas.StateOf(err) {
	case schemas.SQLStateObjectInUse:
		return refuse(ErrSlotActive, fixActive)
	case schemas.SQLStateUndefinedObject:
		return refuse(ErrSlotMissing, fixMissing)
	case schemas.SQLStateNotInPrerequisiteState, schemas.SQLStateUndefinedFile:
		return refuse(ErrSlotLost, fixLost(s.slot))
	default:
		return fmt.Errorf("start replication: %w", err)
	}
}

// serverError turns the body of an ErrorResponse into what pgconn would have made of it.
func serverError(body []byte) error {
	var response pgproto3.ErrorResponse
	if err := response.Decode(body); err != nil {
		return &DecodeError{Type: 'E', Length: len(body), Reason: errShort}
	}
	return pgconn.ErrorResponseToPgError(&response)
}

// quoteLiteral follows the walsender's grammar, in which a backslash means itself.
func quoteLiteral(text string) string { return `'` + strings.ReplaceAll(text, `'`, `''`) + `'` }
