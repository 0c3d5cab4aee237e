package replication

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"lapse/schemas"
)

// start starts the stream. It asks for protocol 1, in text, without emitted messages (any role can emit one, of any size) and without transactions in
// progress: the server assembles them, so one of any size needs constant memory here. A notice before the stream says nothing about publications,
// because the server looks them up at the first change.
func (s *Stream) start(ctx context.Context, publications []string) error {
	names := make([]string, len(publications))
	for i, name := range publications {
		names[i] = schemas.Identifier(name)
	}
	options := pglogrepl.StartReplicationOptions{Mode: pglogrepl.LogicalReplication, PluginArgs: []string{
		"proto_version '1'", "publication_names " + commandLiteral(strings.Join(names, ",")),
		"messages 'false'", "binary 'false'", "streaming 'false'",
	}}
	const slotsOwn = 0 // the slot's own position
	err := pglogrepl.StartReplication(ctx, s.conn, schemas.Identifier(s.slot), slotsOwn, options)
	if err != nil {
		return s.refused(err)
	}
	return s.wire.takeOver()
}

const fixActive = "one slot serves one stream; the other one must end first"

// fixMissing says how to continue without the slot.
const fixMissing = "run lapse init --new-slot: the topics stay, and what was deleted in between is a gap in them"

// fixLost says how to continue with another slot, where the present one may not count as lost.
func fixLost(slot string) string {
	return fmt.Sprintf("select pg_drop_replication_slot(%s), then %s", schemas.Literal(slot), fixMissing)
}

// refused interprets an error of START_REPLICATION. The slot was checked a moment before: it existed, and was ours.
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
		return refuse(errSlotMissing, fixMissing)
	case schemas.SQLStateNotInPrerequisiteState, schemas.SQLStateUndefinedFile:
		return refuse(ErrSlotLost, fixLost(s.slot))
	default:
		return fmt.Errorf("start replication: %w", err)
	}
}

// serverError converts the body of an ErrorResponse as pgconn would.
func serverError(body []byte) error {
	var response pgproto3.ErrorResponse
	if err := response.Decode(body); err != nil {
		return &decodeError{Type: 'E', Length: len(body), Reason: errShort}
	}
	return pgconn.ErrorResponseToPgError(&response)
}

// commandLiteral quotes a text for the commands of the replication protocol, in which a backslash means itself.
func commandLiteral(text string) string { return `'` + strings.ReplaceAll(text, `'`, `''`) + `'` }
