package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/schemas"
)

const (
	// healthInterval is how long one look at the audit is believed.
	healthInterval = time.Second
	// auditSilence is how long the auditor may be away, and how old an unconfirmed batch may be.
	auditSilence = time.Minute
	// beatLasts is how far a beat may be from the server's clock, as lapse.enter has it. One is written each minute.
	beatLasts = 2 * time.Minute
)

// position is a place in the write-ahead log.
type position uint64

func (p position) String() string { return fmt.Sprintf("%X/%X", uint64(p)>>32, uint32(p)) }

// Reason names why nothing is deleted: a label of skips_total.
type Reason string

// Why nothing is deleted at all.
const (
	ReasonStandby      Reason = "standby"
	ReasonNotInstalled Reason = "not_installed"
	ReasonPausedAll    Reason = "paused_all"
	ReasonNoSlot       Reason = "slot_missing"
	ReasonForeignSlot  Reason = "slot_of_another_database"
	ReasonLostSlot     Reason = "slot_lost"
	ReasonNoAuditor    Reason = "auditor_away"
	ReasonAuditBehind  Reason = "audit_behind"

	ReasonNoBeat             Reason = "no_beat"
	ReasonHistoryChanged     Reason = "history_changed"
	ReasonPublicationsDiffer Reason = "publications_differ"
)

// Refusal says why nothing is deleted in this database, and what to do about it.
type Refusal struct {
	Reason Reason
	Detail string
	Fix    string
}

func (r *Refusal) Error() string { return "nothing is deleted: " + r.Detail + ": " + r.Fix }

// mark says that every batch that ended up to an instant lies below a position.
type mark struct {
	at    time.Time
	below position
}

// health decides whether batches may run: on a primary, and, where audit is required, only while the auditor reads what
// they delete. It fails closed: what it cannot see is not there.
//
// A database agrees with itself after any restore, so that it is not asked whether its past is the right one. The auditor,
// which has the log, says so with each beat, for the server as it runs: another start, timeline or history makes it void.
//
// What must be confirmed is kept in memory. A restart forgets it and takes the present position in its place, which is
// above every batch of a former process.
type health struct {
	started   bool      // the present position was taken as the first mark
	seen      time.Time // when it looked last
	verdict   error     // what it found: nil or a *Refusal
	auditor   time.Time // when the slot was last seen in use
	confirmed position
	advanced  time.Time // when confirmed last moved
	marks     []mark    // in order
	unmarked  time.Time // when a batch ended that no mark is above; zero if there is none
}

// audit is one look.
type audit struct {
	standby, required, exists, local, active bool
	slot, status                             string
	confirmed, insert                        *int64

	server     past   // the history that is in force, and this server
	accepted   past   // where that history was accepted
	beaten     bool   // there is a beat as enter wants it
	last       *past  // what the last beat says; nil if there is none
	restarted  bool   // since the last beat
	difference string // in what the publications are not as Lapse left them; "" in nothing

	// Every deletion is paused, by a person or by the auditor's alarm. Texts are bounded by the query.
	halted            bool
	haltedAt, by, why string
}

// past is which history a row is of, and where it was written.
type past struct {
	History  int32  `json:"history"`
	Timeline int32  `json:"timeline"`
	System   string `json:"system_identifier"`
}

func (p past) String() string {
	return fmt.Sprintf("history %d, timeline %d, system %s", p.History, p.Timeline, p.System)
}

const auditQuery = `
	select pg_is_in_recovery(), i.audit_required, i.slot::text,
	       s.slot_name is not null, coalesce(s.database = current_database(), false), coalesce(s.wal_status, ''),
	       coalesce(s.active, false),
	       (s.confirmed_flush_lsn - '0/0'::pg_lsn)::bigint,
	       case when not pg_is_in_recovery() then (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint end,
	       coalesce(h.halted, false), coalesce(to_char(h.at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS'), ''),
	       coalesce(left(h.by, 63), ''), coalesce(left(h.reason, 500), ''),
	       coalesce(n.number, 0), p.timeline, p.system_identifier, coalesce(n.timeline, 0), coalesce(n.system_identifier, ''),
	       exists (select from lapse.heartbeat b
	                where b.at between clock_timestamp() - $1::interval and clock_timestamp() + $1::interval
	                  and b.history = n.number and b.timeline = p.timeline and b.server_start = pg_postmaster_start_time()
	                  and b.database_oid = (select d.oid from pg_database d where d.datname = current_database())),
	       to_jsonb(b), coalesce(b.server_start <> pg_postmaster_start_time(), false),
	       coalesce(case when not pg_is_in_recovery() then lapse.publications_fault() end, '')
	  from lapse.installation i
	 cross join lateral (
	   select case when not pg_is_in_recovery() then lapse.timeline() else 0 end as timeline, lapse.system_identifier() as system_identifier
	 ) p
	  left join (select number, timeline, system_identifier from lapse.history order by number desc limit 1) n on true
	  left join (select history, timeline, system_identifier, server_start from lapse.heartbeat order by id desc limit 1) b on true
	  left join pg_replication_slots s on s.slot_name = i.slot
	  left join (select halted, by, reason, at from lapse.halt order by id desc limit 1) h on true`

// check returns nil when a batch may run, a *Refusal when it may not, and another error when it could not look. It asks
// the server at most once in healthInterval.
func (h *health) check(ctx context.Context, s *session, now time.Time) error {
	if !h.seen.IsZero() && now.Sub(h.seen) < healthInterval {
		return h.verdict
	}
	var a audit
	err := s.control.QueryRow(ctx, auditQuery, beatLasts).Scan(&a.standby, &a.required, &a.slot, &a.exists, &a.local,
		&a.status, &a.active, &a.confirmed, &a.insert, &a.halted, &a.haltedAt, &a.by, &a.why,
		&a.server.History, &a.server.Timeline, &a.server.System, &a.accepted.Timeline, &a.accepted.System,
		&a.beaten, &a.last, &a.restarted, &a.difference)
	a.accepted.History = a.server.History
	var server *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows), errors.As(err, &server) && slices.Contains([]string{schemas.SQLStateUndefinedTable, schemas.SQLStateUndefinedFunction, schemas.SQLStateInvalidSchemaName}, server.Code):
		h.verdict = &Refusal{ReasonNotInstalled, "this database has no installation on record", "run `lapse init`"}
	case err != nil:
		h.seen = time.Time{}
		return fmt.Errorf("look at the audit: %w", err)
	default:
		h.verdict = h.judge(&a, now)
	}
	h.seen = now
	return h.verdict
}

// judge is check without the query.
func (h *health) judge(a *audit, now time.Time) error {
	if a.standby {
		return &Refusal{ReasonStandby, "this server is a standby", "point database: in lapse.yaml at the primary"}
	}
	h.settle(a, now)
	if a.halted {
		return &Refusal{ReasonPausedAll, fmt.Sprintf("every deletion in this database was paused at %s UTC by %s: %q", a.haltedAt, a.by, a.why), "lapse resume --all --reason TEXT"}
	}
	if !a.required {
		return a.unaudited()
	}
	slot := fmt.Sprintf("replication slot %q ", a.slot)
	switch {
	case !a.exists:
		return &Refusal{ReasonNoSlot, slot + "does not exist", "run `lapse init --new-slot`; what was deleted meanwhile is a gap in the evidence"}
	case !a.local:
		return &Refusal{ReasonForeignSlot, slot + "belongs to another database", "give each database a slot of its own: slot: in lapse.yaml"}
	case a.status == "lost" || a.status == "unreserved" || a.confirmed == nil:
		return &Refusal{ReasonLostSlot, slot + "is losing or has lost its log (wal_status " + a.status + ")", "see that `lapse audit` runs and raise max_slot_wal_keep_size; a lost slot is dropped and made again by `lapse init --new-slot`, and the evidence has a gap"}
	case !a.active && !a.beaten && now.Sub(h.auditor) > auditSilence:
		return &Refusal{ReasonNoAuditor, "nobody has read " + slot + "for a minute", "start `lapse audit` or `lapse serve`"}
	case !a.beaten:
		return a.noBeat()
	case a.difference != "":
		return &Refusal{
			ReasonPublicationsDiffer, "what is published is not as Lapse left it: " + a.difference,
			"find out who changed it, then run `lapse init` and `lapse apply`: they put it right or say what to run",
		}
	case h.behind(now):
		return &Refusal{ReasonAuditBehind, fmt.Sprintf("the auditor has confirmed %v, batches more than a minute old reach up to %v", h.confirmed, h.marks[0].below), "see why `lapse audit` is slow: its log, and whether Kafka answers"}
	}
	return nil
}

// unaudited judges where nobody reads what is deleted: a person accepted the server as it is, or nothing is deleted.
func (a *audit) unaudited() error {
	if a.server == a.accepted {
		return nil
	}
	return &Refusal{
		ReasonHistoryChanged, fmt.Sprintf("this server is at %v, and what was accepted last is %v: a standby was promoted, or a copy restored or started", a.server, a.accepted),
		"see that this is the server you mean, then run `lapse history accept --reason TEXT`",
	}
}

// noBeat says why no beat of the last minutes counts.
func (a *audit) noBeat() error {
	const wait = "see that `lapse audit` or `lapse serve` runs and what it says; it beats once it has found its log and this database to be one history"
	switch {
	case a.last != nil && *a.last != a.server:
		return &Refusal{ReasonHistoryChanged, fmt.Sprintf("this server is at %v, and the auditor's last beat is of %v", a.server, *a.last), wait + "; if they are not, `lapse history` says in what"}
	case a.restarted:
		return &Refusal{ReasonNoBeat, "the server was started again since the auditor's last beat", wait}
	}
	return &Refusal{ReasonNoBeat, fmt.Sprintf("the auditor has written no beat for %v", beatLasts), wait}
}

// settle takes down what the look showed.
func (h *health) settle(a *audit, now time.Time) {
	if a.active {
		h.auditor = now
	}
	if a.confirmed != nil && position(*a.confirmed) != h.confirmed {
		h.confirmed, h.advanced = position(*a.confirmed), now
	}
	switch insert := position(*a.insert); {
	case !h.started:
		h.started = true
		h.marks = append(h.marks, mark{now, insert})
	case !h.unmarked.IsZero():
		h.marks = append(h.marks, mark{h.unmarked, insert})
	}
	h.unmarked = time.Time{}
	for len(h.marks) > 0 && h.marks[0].below <= h.confirmed {
		h.marks = h.marks[1:]
	}
}

// behind says whether a batch older than auditSilence is unconfirmed.
func (h *health) behind(now time.Time) bool {
	return len(h.marks) > 0 && now.Sub(h.marks[0].at) > auditSilence
}

// ended says that a batch may have committed.
func (h *health) ended(now time.Time) {
	if h.unmarked.IsZero() {
		h.unmarked = now
	}
}

// above says that every batch so far lies below insert. Marks of one second are kept as one.
func (h *health) above(insert position) {
	if h.unmarked.IsZero() {
		return
	}
	if n := len(h.marks); n > 0 && h.unmarked.Sub(h.marks[n-1].at) < time.Second {
		h.marks[n-1].below = insert
	} else {
		h.marks = append(h.marks, mark{h.unmarked, insert})
	}
	h.unmarked = time.Time{}
}
