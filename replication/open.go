package replication

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/schemas"
)

// StreamConfig says what to read.
type StreamConfig struct {
	// ConnString is a URL or keyword string, as libpq takes it; the login needs REPLICATION.
	ConnString string
	// Slot is the slot to read. It must exist: a stream never makes one, because a slot that is made again is a gap.
	Slot string
	// Copy says to read a temporary copy of the slot, from the same position, which ends with the connection. The slot itself does not advance, and
	// another process may read it meanwhile.
	Copy bool
	// Publications are the publications to read, by default Publications().
	Publications []string
	// StatusInterval is the longest pause between two statuses, by default 10 s, and never more than a third of the
	// server's wal_sender_timeout. A position that moved is sent after a tenth of it.
	StatusInterval time.Duration
	// Admit is called before anything else is done with a connection, which accepts only the simple protocol. Its error ends Open; GradeOf
	// grades it. nil admits every connection.
	Admit func(ctx context.Context, conn *pgconn.PgConn) error
	// Inspect is called after the checks of the connection and before the stream starts, so that the very server that streams answers its
	// queries; it is also called if the slot turns out to be in use. The connection accepts only the simple protocol. Its error ends Open. nil:
	// not called.
	Inspect func(ctx context.Context, conn *pgx.Conn, identity *Identity) error
	// Received is called with each number of bytes that came from the server, by the goroutine that reads the stream. nil: not called.
	Received func(bytes int)
	// Logger gets what is worth knowing but no error; nil discards it.
	Logger *slog.Logger
}

// defaultStatusInterval is the same as that of PostgreSQL's own receivers.
const defaultStatusInterval = 10 * time.Second

// Open connects and starts reading. If it returns without error the slot is ours until Close: the server gives a slot to one connection at a time.
// ctx bounds only the opening.
//
// Open asks for position 0/0, which means the slot's own: no wrong position of a client can skip anything.
//
// A slot in use is ErrSlotActive, a missing one errSlotMissing, and one that the server has invalidated ErrSlotLost; GradeOf grades the rest.
func Open(ctx context.Context, config StreamConfig) (*Stream, error) {
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if len(config.Publications) == 0 {
		config.Publications = Publications()
	}
	if config.StatusInterval <= 0 {
		config.StatusInterval = defaultStatusInterval
	}
	s, err := open(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open stream: %w", err)
	}
	config.Logger.Info("replication stream open",
		"slot", config.Slot, "started_at", s.startedAt.String(), "timeline", uint32(s.identity.Timeline),
		"database", s.identity.Database, "server_version", s.identity.ServerVersion)
	return s, nil
}

func open(ctx context.Context, config StreamConfig) (*Stream, error) {
	plain, err := pgconn.ParseConfig(config.ConnString)
	if err != nil {
		return nil, err
	}
	schemas.PinSession(plain.RuntimeParams, schemas.SessionSettings())
	conn, wire, err := connect(ctx, config)
	if err != nil {
		return nil, err
	}
	s, err := prepare(ctx, conn, config)
	if err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	s.conn, s.wire, s.plain = conn.PgConn(), wire, plain
	if err := s.start(ctx, config.Publications); err != nil {
		_ = s.fail(err)
		return nil, err
	}
	return s, nil
}

// prepare makes the queries that must precede the stream, because none can be made after.
func prepare(ctx context.Context, conn *pgx.Conn, config StreamConfig) (*Stream, error) {
	identity, err := readIdentity(ctx, conn)
	if err != nil {
		return nil, err
	}
	if err := CheckWALLevel(ctx, conn); err != nil {
		return nil, err
	}
	if identity.Ancestry, err = readAncestry(ctx, conn.PgConn(), identity.Timeline); err != nil {
		return nil, err
	}
	if err := requirePublications(ctx, conn, config.Publications); err != nil {
		return nil, err
	}
	timeout, err := senderTimeout(ctx, conn)
	if err != nil {
		return nil, err
	}
	// Before the stream starts, so that commits never wait for us.
	if err := CheckSynchronousNames(ctx, conn, applicationName(&conn.Config().Config)); err != nil {
		return nil, err
	}
	slot, err := ReadSlot(ctx, conn, config.Slot)
	if err != nil {
		return nil, err
	}
	if err := CheckSlot(slot, identity.Database); err != nil {
		return nil, err
	}
	if config.Copy {
		if slot, err = copySlot(ctx, conn, slot.Name, fmt.Sprintf("lapse_copy_%d", conn.PgConn().PID())); err != nil {
			return nil, err
		}
	}
	if config.Inspect != nil {
		if err := config.Inspect(ctx, conn, &identity); err != nil {
			return nil, err
		}
	}
	if slot.Active && !config.Copy {
		// START_REPLICATION would report it too. But if the other stream ended just before, the position read here would be older than the slot's.
		return nil, &SlotError{
			Slot: config.Slot, Reason: ErrSlotActive, Detail: fmt.Sprintf("by server process %d", slot.ActivePID), Fix: fixActive,
		}
	}
	// This comes last, because the simple protocol cannot carry parameters in every encoding.
	if _, err := conn.Exec(ctx, "set client_encoding to "+schemas.Literal(identity.Encoding)); err != nil {
		return nil, fmt.Errorf("set client_encoding: %w", err)
	}
	interval := min(config.StatusInterval, timeout/3)
	s := &Stream{
		counts: config.Received,
		slot:   slot.Name, identity: identity, startedAt: slot.Confirmed, sent: slot.Confirmed, log: config.Logger,
		liveness: newLiveness(), wakeups: make(chan struct{}, 1), senderTimeout: timeout,
		status:  statuses{interval: interval, sent: slot.Confirmed, sentAt: time.Now()},
		decoder: newDecoder(identity.TimelineOf),
	}
	s.confirmed.Store(uint64(slot.Confirmed))
	return s, nil
}
