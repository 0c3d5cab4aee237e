package guard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/executor/state"
	"lapse/schemas"
)

// heartbeatLasts is how far a heartbeat may be from the server's clock; lapse.enter has the same limit. One is written each minute.
const heartbeatLasts = 2 * time.Minute

// Facts are what one reading of the database showed.
type Facts struct {
	standby   bool
	readOnly  bool // sessions begin read only, even if the server is a primary
	installed bool // there is an installation on record
	required  bool // audit: required

	slot              string
	exists            bool // the slot exists
	local, active     bool // it belongs to this database; a process reads it
	status            string
	confirmed, insert schemas.LSN // 0: unknown

	server     identity  // the history in force, and this server
	accepted   identity  // where that history was accepted
	beating    bool      // there is a heartbeat that lapse.enter would accept
	doubted    bool      // the auditor has revoked its heartbeats
	last       *identity // what the last heartbeat says; nil if there is none
	restarted  bool      // the server was started since the last heartbeat
	difference string    // how the publications differ from what Lapse left; "" if they do not, or no audit is required
	load       load      // the server's other load

	seen   state.Seen // what is compared with an executor's memory
	strays string     // how the database differs from that memory; "" if it does not, or there is none
	blind  error      // why that memory cannot be read

	clock time.Time // the server's
	read  time.Time // the same moment by this process's monotonic clock
	right int64     // how often a person has accepted the server's clock

	// Every deletion is paused, by a person or (alarmed) by the auditor's alarm. The query bounds the texts.
	halted, alarmed   bool
	haltedAt, by, why string
}

// identity is a history, and the server on which a row of it was written.
type identity struct {
	History  schemas.History  `json:"history"`
	Timeline schemas.Timeline `json:"timeline"`
	System   string           `json:"system_identifier"`
}

func (i identity) String() string {
	return fmt.Sprintf("history %d, timeline %d, system %s", i.History, i.Timeline, i.System)
}

// Querier is the part of a connection that Read needs.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

const factsQuery = `
	select pg_is_in_recovery(), i.audit_required, i.slot::text,
	       s.slot_name is not null, coalesce(s.database = current_database(), false), coalesce(s.wal_status, ''),
	       coalesce(s.active, false), s.confirmed_flush_lsn,
	       case when not pg_is_in_recovery() then pg_current_wal_insert_lsn() end,
	       coalesce(h.halted, false), coalesce(h.alarm, false), coalesce(to_char(h.at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS'), ''),
	       coalesce(left(h.by, 63), ''), coalesce(left(h.reason, 500), ''),
	       coalesce(n.number, 0), p.timeline, p.system_identifier, coalesce(n.timeline, 0), coalesce(n.system_identifier, ''),
	       exists (select from lapse.heartbeat b
	                where b.at between clock_timestamp() - $1::interval and clock_timestamp() + $1::interval
	                  and b.history = n.number and b.timeline = p.timeline and b.server_start = pg_postmaster_start_time()
	                  and b.database_oid = (select d.oid from pg_database d where d.datname = current_database())
	                  and b.id > coalesce(i.doubted, 0)),
	       coalesce(i.doubted >= (select max(id) from lapse.heartbeat), false),
	       to_jsonb(b), coalesce(b.server_start <> pg_postmaster_start_time(), false),
	       coalesce(case when i.audit_required and not pg_is_in_recovery() then lapse.publications_fault() end, ''),
	       case when not pg_is_in_recovery() then ` + loadColumn + ` else '{}' end,
	       clock_timestamp(), (select coalesce(max(c.id), 0) from lapse.clock c), current_setting('default_transaction_read_only')::bool,
	       (select d.oid from pg_database d where d.datname = current_database()), pg_postmaster_start_time(),
	       (select coalesce(array_agg(h.nonce order by h.number), '{}') from lapse.history h),
	       (select coalesce(jsonb_object_agg(m.memory, m.beats), '{}') from lapse.memory m)
	  from lapse.installation i
	 cross join lateral (
	   select case when not pg_is_in_recovery() then lapse.timeline() else 0 end as timeline, lapse.system_identifier() as system_identifier
	 ) p
	  left join (select number, timeline, system_identifier from lapse.history order by number desc limit 1) n on true
	  left join (select history, timeline, system_identifier, server_start from lapse.heartbeat order by id desc limit 1) b on true
	  left join pg_replication_slots s on s.slot_name = i.slot
	  left join (select halted, alarm, by, reason, at from lapse.halt order by id desc limit 1) h on true`

// notInstalled are the errors of a database in which Lapse is not installed.
var notInstalled = []string{schemas.SQLStateUndefinedTable, schemas.SQLStateUndefinedFunction, schemas.SQLStateInvalidSchemaName}

// Read reads the facts, in one statement. backends are the server processes that run this executor's batches.
func Read(ctx context.Context, q Querier, backends []int32) (*Facts, error) {
	f := Facts{installed: true}
	err := q.QueryRow(ctx, factsQuery, heartbeatLasts, backends).Scan(&f.standby, &f.required, &f.slot, &f.exists, &f.local,
		&f.status, &f.active, &f.confirmed, &f.insert, &f.halted, &f.alarmed, &f.haltedAt, &f.by, &f.why,
		&f.server.History, &f.server.Timeline, &f.server.System, &f.accepted.Timeline, &f.accepted.System,
		&f.beating, &f.doubted, &f.last, &f.restarted, &f.difference, &f.load, &f.clock, &f.right, &f.readOnly,
		&f.seen.Database, &f.seen.Started, &f.seen.Histories, &f.seen.Beats)
	f.read = time.Now()
	f.accepted.History, f.seen.System = f.server.History, f.server.System
	if errors.Is(err, pgx.ErrNoRows) || slices.Contains(notInstalled, schemas.StateOf(err)) {
		return &Facts{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("check the audit: %w", err)
	}
	return &f, nil
}

// Of reports whether the facts are of this database, on this cluster, and its server was not started since.
func (f *Facts) Of(system uint64, database uint32, started time.Time) bool {
	return f.seen.System == strconv.FormatUint(system, 10) && f.seen.Database == database && f.seen.Started.Equal(started)
}

// Unaudited reports whether there is an installation that requires no audit.
func (f *Facts) Unaudited() bool { return f.installed && !f.required }

// Compare compares the database with what an executor remembers of it, if no audit is required. The caller recalled m before the reading.
func (f *Facts) Compare(m *state.Recalled) {
	if f.Unaudited() && !f.standby {
		f.strays, f.blind = m.Compare(&f.seen)
	}
}

// ToRemember returns what an executor may remember of the database. It is nil if the database has an audit, cannot be written to, or was
// never accepted.
func (f *Facts) ToRemember() *state.Seen {
	if f.required || f.standby || f.readOnly || !f.installed || f.server != f.accepted || f.strays != "" || f.blind != nil {
		return nil
	}
	return &f.seen
}
