package replication

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"lapse/schemas"
)

// StreamConfig says what to read.
type StreamConfig struct {
	// ConnString is a URL or keyword string, as libpq takes it; the login needs REPLICATION.
	ConnString string
	// Slot is the slot to read. It must exist: a stream never makes one, because a slot that is made again is a gap.
	Slot string
	// Publications are the publications to read, by default Publications().
	Publications []string
	// StatusInterval is the longest pause between two statuses, by default 10 s, and never more than a third of the
	// server's wal_sender_timeout. A position that moved is sent after a tenth of it.
	StatusInterval time.Duration
	// Admit is asked before anything else is done with a connection, which knows the simple protocol only. Its error ends
	// Open; GradeOf says what becomes of it. nil admits everybody.
	Admit func(ctx context.Context, conn *pgconn.PgConn) error
	// Inspect is called when the connection was found fit and before the stream starts, so that what it asks is answered by
	// the very server that streams. The connection knows the simple protocol only. Its error ends Open. nil: nothing is asked.
	Inspect func(ctx context.Context, conn *pgx.Conn, identity *Identity) error
	// Logger gets what is worth knowing and no error; nil discards it.
	Logger *slog.Logger
}

// defaultStatusInterval is that of PostgreSQL's own receivers.
const defaultStatusInterval = 10 * time.Second

// Open connects and starts reading. When it returns without error the slot is ours, and stays ours until Close: the
// server gives a slot to one connection at a time. ctx bounds the opening only.
//
// It asks for position 0/0, which is the slot's own: no client's idea of a position can skip anything.
//
// A slot in use is ErrSlotActive, one that is not there ErrSlotMissing, one that the server gave up ErrSlotLost; see
// GradeOf for the rest.
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
	s.wire, s.plain = wire, plain
	hijacked, err := conn.PgConn().Hijack()
	if err == nil {
		err = wire.takeOver()
	}
	if err != nil {
		_ = wire.Close()
		return nil, err
	}
	s.pid = hijacked.PID
	if err := s.start(ctx, startCommand(config)); err != nil {
		_ = s.fail(err)
		return nil, err
	}
	return s, nil
}

// connect makes a replication connection that still speaks SQL, and the wire below it.
//
// The settings of every session of ours pin the text form of every type: the same log gives the same bytes, whatever the
// role, the database or the server's configuration says. client_encoding alone is set again, to the database's.
func connect(ctx context.Context, c StreamConfig) (*pgx.Conn, *wire, error) {
	config, err := pgx.ParseConfig(c.ConnString)
	if err != nil {
		return nil, nil, err
	}
	// A replication connection knows the simple protocol only.
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	schemas.PinSession(config.RuntimeParams, schemas.SessionSettings())
	schemas.PinSession(config.RuntimeParams, map[string]string{"replication": "database"})
	config.RuntimeParams["application_name"] = applicationName(&config.Config)
	config.AfterConnect = c.Admit
	wire := attachWire(&config.Config)
	conn, err := pgx.ConnectConfig(ctx, config)
	switch {
	case schemas.StateOf(err) == schemas.SQLStateInsufficientPrivilege:
		return nil, nil, fmt.Errorf("%w; to read the log, run: alter role %s replication", err, schemas.Identifier(config.User))
	case schemas.StateOf(err) == schemas.SQLStateProtocolViolation, schemas.StateOf(err) == schemas.SQLStateUndefinedObject:
		return nil, nil, fmt.Errorf("%w; a setting of the session is refused: connect to PostgreSQL directly, not through a pooler", err)
	case err != nil:
		return nil, nil, err
	}
	return conn, wire(), nil
}

// prepare does what must be asked before the stream starts, because nothing can be asked after.
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
	// Before the stream: the server must have no moment in which commits wait for us.
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
	if slot.Active {
		// START_REPLICATION would say so too. But were the other stream to end before it, the position read here would
		// be older than the slot's.
		return nil, &SlotError{
			Slot: config.Slot, Reason: ErrSlotActive, Detail: fmt.Sprintf("by server process %d", slot.ActivePID), Fix: fixActive,
		}
	}
	if config.Inspect != nil {
		if err := config.Inspect(ctx, conn, &identity); err != nil {
			return nil, err
		}
	}
	// Last, because the simple protocol cannot carry parameters in every encoding.
	if _, err := conn.Exec(ctx, "set client_encoding to "+quoteLiteral(identity.Encoding)); err != nil {
		return nil, fmt.Errorf("set client_encoding: %w", err)
	}
	interval := min(config.StatusInterval, timeout/3)
	s := &Stream{
		slot: config.Slot, identity: identity, startedAt: slot.Confirmed, seen: slot.Confirmed, log: config.Logger,
		silence: newSilence(), senderTimeout: timeout,
		status:  statuses{interval: interval, sent: slot.Confirmed, sentAt: time.Now()},
		decoder: newDecoder(identity.TimelineOf),
	}
	s.confirmed.Store(uint64(slot.Confirmed))
	return s, nil
}

// senderTimeout is how long the server waits for a sign of life. It sees to it that this is not for ever, nor longer than
// we want to wait for one of the server.
func senderTimeout(ctx context.Context, conn *pgx.Conn) (time.Duration, error) {
	var milliseconds int64
	const query = `select s.setting::bigint from pg_catalog.pg_settings s where s.name = 'wal_sender_timeout'`
	if err := conn.QueryRow(ctx, query).Scan(&milliseconds); err != nil {
		return 0, fmt.Errorf("read wal_sender_timeout: %w", err)
	}
	if timeout := time.Duration(milliseconds) * time.Millisecond; timeout > 0 && timeout <= senderTimeoutAtMost {
		return timeout, nil
	}
	if _, err := conn.Exec(ctx, fmt.Sprintf("set wal_sender_timeout to '%dms'", senderTimeoutAtMost.Milliseconds())); err != nil {
		return 0, fmt.Errorf("set wal_sender_timeout: %w", err)
	}
	return senderTimeoutAtMost, nil
}

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
			if err := s.wait(ctx, time.Time{}); err != nil {
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
