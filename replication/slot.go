package replication

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/schemas"
)

// outputPlugin is the output plugin that Lapse's slots use. It is part of PostgreSQL.
const outputPlugin = "pgoutput"

// Querier is the part of a connection, a transaction or a pool that catalog queries need.
type Querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// walLost is the value of pg_replication_slots.wal_status for an invalidated slot. From unreserved it takes one checkpoint to become lost,
// perhaps without a poll in between: watch SafeWALSize.
const walLost = "lost"

// SlotState is what the server says about a slot at one moment.
type SlotState struct {
	Name      string
	Exists    bool // everything below is zero if not
	Plugin    string
	Database  string
	Temporary bool
	TwoPhase  bool
	Failover  bool // always false before PostgreSQL 17

	Active    bool
	ActivePID int32 // of the server process that streams from it

	// Confirmed is where the next stream starts. It can go back when the server crashes, because the server saves it with the slot, not with each
	// confirmation.
	Confirmed schemas.LSN
	// Restart is the position from which the server must keep its log. A transaction left open in any database holds it back while Confirmed
	// advances: two separate alarms.
	Restart schemas.LSN
	// Current is the end of the server's log.
	Current schemas.LSN

	WALStatus string // pg_replication_slots.wal_status
	// SafeWALSize is how much more log may be written before the slot is in danger; nil if there is no limit (max_slot_wal_keep_size is -1) or
	// nothing left to lose.
	SafeWALSize *int64
	// Invalidation is the reason that PostgreSQL 17 and later give for a lost slot.
	Invalidation string
}

// Behind is how much log the consumer has not confirmed.
func (s SlotState) Behind() int64 { return int64(s.Current) - int64(s.Confirmed) }

// Held is how much log the server keeps because of this slot.
func (s SlotState) Held() int64 { return int64(s.Current) - int64(s.Restart) }

// Lost reports whether the slot can no longer be streamed.
func (s SlotState) Lost() bool { return s.WALStatus == walLost || s.Invalidation != "" }

// ReadSlot reads the state of a slot. A slot that does not exist is a state, not an error.
func ReadSlot(ctx context.Context, q Querier, name string) (SlotState, error) {
	// Columns that only later servers have are read by name from the row's JSON form, so that one statement works on all of them.
	const query = `
select s.plugin, coalesce(s.database::text, ''), s.temporary,
       coalesce((to_jsonb(s) ->> 'two_phase')::boolean, false),
       coalesce((to_jsonb(s) ->> 'failover')::boolean, false),
       s.active, coalesce(s.active_pid, 0),
       s.confirmed_flush_lsn::text, s.restart_lsn::text,
       case when not pg_is_in_recovery() then pg_current_wal_lsn()::text end,
       coalesce(s.wal_status, ''), s.safe_wal_size,
       coalesce(to_jsonb(s) ->> 'invalidation_reason', '')
  from pg_catalog.pg_replication_slots s
 where s.slot_name = $1`
	s := SlotState{Name: name}
	var plugin *string
	err := q.QueryRow(ctx, query, name).Scan(&plugin, &s.Database, &s.Temporary, &s.TwoPhase, &s.Failover,
		&s.Active, &s.ActivePID, &s.Confirmed, &s.Restart, &s.Current, &s.WALStatus, &s.SafeWALSize, &s.Invalidation)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return s, nil
	case err != nil:
		return s, fmt.Errorf("read slot %q: %w", name, err)
	}
	s.Exists = true
	if plugin != nil {
		s.Plugin = *plugin
	}
	return s, nil
}

// CheckSlot returns a *SlotError if a stream in this database cannot use the slot. It does not check whether the slot is in use: only
// START_REPLICATION can tell.
func CheckSlot(s SlotState, database string) error {
	refuse := func(reason error, detail, fix string) error {
		return &SlotError{Slot: s.Name, Reason: reason, Detail: detail, Fix: fix}
	}
	const other = "choose another name for the slot in lapse.yaml (slot:)"
	switch {
	case !s.Exists:
		return refuse(errSlotMissing, "", fixMissing)
	case s.Plugin != outputPlugin:
		return refuse(errSlotForeign, fmt.Sprintf("its plugin is %q, want %q", s.Plugin, outputPlugin), other)
	case s.Database != database:
		return refuse(errSlotForeign, fmt.Sprintf("it belongs to database %q, not %q", s.Database, database), other)
	case s.Temporary:
		return refuse(errSlotForeign, "it is temporary", other)
	case s.TwoPhase:
		return refuse(errSlotForeign, "it decodes prepared transactions before they commit", other)
	case s.Lost():
		return refuse(ErrSlotLost, s.Invalidation, fixMissing) // init drops it itself
	default:
		return nil
	}
}

// slotOptions are set by SlotOption.
type slotOptions struct {
	failover     bool
	publications []string // that must exist before the slot
}

// SlotOption changes how a slot is made.
type SlotOption func(*slotOptions)

// WithFailover makes the server copy the slot to standbys, so that it survives a promotion. Servers before PostgreSQL 17 refuse it. The
// standby's copy becomes usable only once the slot has advanced past the standby's own start.
func WithFailover() SlotOption { return func(o *slotOptions) { o.failover = true } }

// CreateSlot makes a logical slot and returns its consistent point: every transaction that commits after it will be delivered, none that committed
// before. Durable when it returns.
//
// It refuses while a publication is missing. A slot decodes a change with the catalog as it was at that change, so with a publication that is younger
// than the slot, it would be stuck forever on the first change before the publication.
//
// The server waits for every transaction that is open in the cluster at the start; bound that by ctx or statement_timeout. It must not run in a
// transaction that has written.
func CreateSlot(ctx context.Context, q Querier, name string, options ...SlotOption) (schemas.LSN, error) {
	o := slotOptions{publications: Publications()}
	for _, option := range options {
		option(&o)
	}
	if err := CheckWALLevel(ctx, q); err != nil {
		return 0, err
	}
	if err := requirePublications(ctx, q, o.publications); err != nil {
		return 0, fmt.Errorf("create slot %q: %w", name, err)
	}
	query := `select lsn::text from pg_catalog.pg_create_logical_replication_slot($1, $2)`
	if o.failover {
		version, err := serverVersion(ctx, q)
		if err != nil {
			return 0, err
		}
		if version < 170000 {
			return 0, &SlotError{Slot: name, Reason: errFailover, Fix: "leave failover off, or upgrade the server"}
		}
		query = `select lsn::text from pg_catalog.pg_create_logical_replication_slot($1, $2, failover => true)`
	}
	var point schemas.LSN
	if err := q.QueryRow(ctx, query, name, outputPlugin).Scan(&point); err != nil {
		if schemas.StateOf(err) == schemas.SQLStateConfigurationLimit {
			return 0, &SlotError{
				Slot: name, Reason: err,
				Fix: "raise max_replication_slots and restart the server, or drop a slot nobody reads",
			}
		}
		return 0, fmt.Errorf("create slot %q: %w", name, err)
	}
	return point, nil
}

var errFailover = errors.New("failover slots need PostgreSQL 17")

// EnsureSlot makes the slot, or checks it if it exists. made says which.
func EnsureSlot(ctx context.Context, q Querier, name string, options ...SlotOption) (s SlotState, made bool, err error) {
	if s, err = ReadSlot(ctx, q, name); err != nil {
		return s, false, err
	}
	if !s.Exists {
		switch _, err = CreateSlot(ctx, q, name, options...); {
		case schemas.StateOf(err) == schemas.SQLStateDuplicateObject: // somebody else was faster
		case err != nil:
			return s, false, err
		default:
			made = true
		}
		if s, err = ReadSlot(ctx, q, name); err != nil {
			return s, made, err
		}
	}
	var database string
	if err := q.QueryRow(ctx, `select pg_catalog.current_database()::text`).Scan(&database); err != nil {
		return s, made, fmt.Errorf("read the database's name: %w", err)
	}
	return s, made, CheckSlot(s, database)
}

// copySlot makes a temporary copy of a slot, which is dropped when the connection ends.
func copySlot(ctx context.Context, q Querier, from, name string) (SlotState, error) {
	_, err := q.Exec(ctx, `select pg_catalog.pg_copy_logical_replication_slot($1, $2, true)`, from, name)
	switch {
	case schemas.StateOf(err) == schemas.SQLStateConfigurationLimit:
		return SlotState{}, &SlotError{
			Slot: name, Reason: err, Fix: "raise max_replication_slots and restart the server, or drop a slot nobody reads",
		}
	case err != nil:
		return SlotState{}, fmt.Errorf("copy slot %q: %w", from, err)
	}
	return ReadSlot(ctx, q, name)
}

// DropSlot removes the slot, and with it every deletion that was not read. A missing slot is not an error; one in use is ErrSlotActive.
func DropSlot(ctx context.Context, q Querier, name string) error {
	_, err := q.Exec(ctx, `select pg_catalog.pg_drop_replication_slot($1)`, name)
	switch schemas.StateOf(err) {
	case schemas.SQLStateUndefinedObject:
		return nil
	case schemas.SQLStateObjectInUse:
		return &SlotError{Slot: name, Reason: ErrSlotActive, Fix: "stop lapse audit first"}
	}
	if err != nil {
		return fmt.Errorf("drop slot %q: %w", name, err)
	}
	return nil
}

// CheckWALLevel returns an error that wraps errNotLogical unless wal_level allows decoding.
func CheckWALLevel(ctx context.Context, q Querier) error {
	var level string
	if err := q.QueryRow(ctx, `select pg_catalog.current_setting('wal_level')`).Scan(&level); err != nil {
		return fmt.Errorf("read wal_level: %w", err)
	}
	if level != "logical" {
		return fmt.Errorf("%w: wal_level is %s; run: alter system set wal_level = 'logical'; then restart the server",
			errNotLogical, level)
	}
	return nil
}

func serverVersion(ctx context.Context, q Querier) (int, error) {
	var version int
	err := q.QueryRow(ctx, `select pg_catalog.current_setting('server_version_num')::integer`).Scan(&version)
	if err != nil {
		return 0, fmt.Errorf("read server version: %w", err)
	}
	return version, nil
}

// End returns the end of the server's log on its disk. A stream sends nothing beyond it.
func End(ctx context.Context, q Querier) (end schemas.LSN, err error) {
	if err := q.QueryRow(ctx, `select pg_catalog.pg_current_wal_flush_lsn()::text`).Scan(&end); err != nil {
		return 0, fmt.Errorf("read the end of the log: %w", err)
	}
	return end, nil
}
