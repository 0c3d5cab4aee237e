package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// healthInterval is how long one look at the audit is believed.
	healthInterval = time.Second
	// auditSilence is how long the auditor may be away, and how old an unconfirmed batch may be.
	auditSilence = time.Minute
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
	standby, required, exists, local, active, beating bool
	slot, status                                      string
	confirmed, insert                                 *int64

	// Every deletion is paused, by a person or by the auditor's alarm. Texts are bounded by the query.
	halted            bool
	haltedAt, by, why string
}

const auditQuery = `
	select pg_is_in_recovery(), i.audit_required, i.slot::text,
	       s.slot_name is not null, coalesce(s.database = current_database(), false), coalesce(s.wal_status, ''),
	       coalesce(s.active, false),
	       exists (select from lapse.heartbeat h where h.at > clock_timestamp() - $1::interval),
	       (s.confirmed_flush_lsn - '0/0'::pg_lsn)::bigint,
	       case when not pg_is_in_recovery() then (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint end,
	       coalesce(h.halted, false), coalesce(to_char(h.at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS'), ''),
	       coalesce(left(h.by, 63), ''), coalesce(left(h.reason, 500), '')
	  from lapse.installation i
	  left join pg_replication_slots s on s.slot_name = i.slot
	  left join (select halted, by, reason, at from lapse.halt order by id desc limit 1) h on true`

// What a database without the catalog answers.
const (
	undefinedTable = "42P01"
	invalidSchema  = "3F000"
)

// check returns nil when a batch may run, a *Refusal when it may not, and another error when it could not look. It asks
// the server at most once in healthInterval.
func (h *health) check(ctx context.Context, s *session, now time.Time) error {
	if !h.seen.IsZero() && now.Sub(h.seen) < healthInterval {
		return h.verdict
	}
	var a audit
	err := s.control.QueryRow(ctx, auditQuery, auditSilence).Scan(&a.standby, &a.required, &a.slot, &a.exists, &a.local,
		&a.status, &a.active, &a.beating, &a.confirmed, &a.insert, &a.halted, &a.haltedAt, &a.by, &a.why)
	var server *pgconn.PgError
	switch {
	case errors.Is(err, pgx.ErrNoRows), errors.As(err, &server) && (server.Code == undefinedTable || server.Code == invalidSchema):
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
		return nil
	}
	slot := fmt.Sprintf("replication slot %q ", a.slot)
	switch {
	case !a.exists:
		return &Refusal{ReasonNoSlot, slot + "does not exist", "name new topics in lapse.yaml and run `lapse init --new-slot`; what was deleted meanwhile is a gap in the evidence"}
	case !a.local:
		return &Refusal{ReasonForeignSlot, slot + "belongs to another database", "give each database a slot of its own: slot: in lapse.yaml"}
	case a.status == "lost" || a.status == "unreserved" || a.confirmed == nil:
		return &Refusal{ReasonLostSlot, slot + "is losing or has lost its log (wal_status " + a.status + ")", "see that `lapse audit` runs and raise max_slot_wal_keep_size; a lost slot is dropped and made again by `lapse init --new-slot`, with new topics"}
	case !a.active && !a.beating && now.Sub(h.auditor) > auditSilence:
		return &Refusal{ReasonNoAuditor, "nobody has read " + slot + "for a minute", "start `lapse audit` or `lapse serve`"}
	case h.behind(now):
		return &Refusal{ReasonAuditBehind, fmt.Sprintf("the auditor has confirmed %v, batches more than a minute old reach up to %v", h.confirmed, h.marks[0].below), "see why `lapse audit` is slow: its log, and whether Kafka answers"}
	}
	return nil
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
