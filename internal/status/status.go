package status

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/planner/record"
	"lapse/replication"
	"lapse/schemas"
)

// Status is the result of `lapse status`.
type Status struct {
	At        time.Time `json:"at"` // the server's clock
	Paused    *Halt     `json:"paused,omitempty"`
	Suspended string    `json:"suspended,omitempty"` // why no policy deletes: a restore, a promotion
	Audit     Audit     `json:"audit"`
	Witnesses string    `json:"witnesses,omitempty"` // what the witnesses have cosigned lately; Read leaves it empty
	Executors []Process `json:"executors"`
	// Unattended are policies that are late by more than their latitude while no executor runs.
	Unattended []schemas.PolicyName `json:"unattended"`
	Policies   []Policy             `json:"policies"`
	Holds      []HeldTable          `json:"holds,omitempty"`
	LeftOver   []string             `json:"left_over,omitempty"` // roles that nothing needs
}

// Audit is the state of the audit, as the server knows it.
type Audit struct {
	Required bool       `json:"required"`
	Slot     string     `json:"slot,omitempty"`
	Exists   bool       `json:"slot_exists"`
	Active   bool       `json:"slot_active"`
	Lost     bool       `json:"slot_lost,omitempty"`
	Behind   int64      `json:"behind_bytes"`             // log that the auditor has not confirmed
	Held     int64      `json:"held_bytes"`               // log that the server keeps for it
	Headroom *int64     `json:"headroom_bytes,omitempty"` // log that may be written before the slot is lost
	Revoked  bool       `json:"revoked,omitempty"`        // the auditor took its heartbeats back: it waits until log and database agree
	LastBeat *time.Time `json:"last_beat,omitempty"`      // the auditor's last heartbeat on this server
	History  int        `json:"history"`
	// Watching is for how many more seconds an auditor that reads the slot may still check whether another one writes the log. It does so when
	// the server has started since the last heartbeat; until then it writes no heartbeat, and nothing is deleted. 0 if it does not check.
	Watching float64 `json:"watching_seconds"`
}

// Process is an executor that recently reported that it runs.
type Process struct {
	Holder string `json:"holder"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	// HeldVersion is why due rows stay, if only this process knows the reason; "" if they do not stay.
	HeldBack schemas.HeldBack `json:"held_back"`
	Since    time.Time        `json:"since"`              // the beginning of this state
	NextTry  *time.Time       `json:"next_try,omitempty"` // the next try of something that is stopped or waits, if known
	At       time.Time        `json:"at"`
	Silent   float64          `json:"silent_seconds,omitempty"` // how long it has reported nothing, if that is longer than it should be
}

// silence is the longest time between two reports of a running executor. It reports every ten seconds, between two turns.
const silence = 25 * time.Second

// Read reads the catalog as its owner, and no user's table. slot is the auditor's slot, "" if no audit is required; suspended is as for
// ReadPolicies.
func Read(ctx context.Context, conn *pgx.Conn, slot, suspended string) (*Status, error) {
	list, err := ReadPolicies(ctx, conn, suspended)
	if err != nil {
		return nil, err
	}
	s := &Status{
		At: list.At, Unattended: list.Unattended, Suspended: suspended, LeftOver: list.LeftOver, Executors: []Process{},
		Policies: make([]Policy, len(list.Policies)),
	}
	if list.Halt.Halted {
		s.Paused = &list.Halt
	}
	if s.Audit, err = readAudit(ctx, conn, slot); err != nil {
		return nil, err
	}
	if s.Holds, err = readHolds(ctx, conn); err != nil {
		return nil, err
	}
	work, err := readProcesses(ctx, conn)
	if err != nil {
		return nil, err
	}
	s.Executors = append(s.Executors, work[""]...)
	for i := range list.Policies {
		s.Policies[i] = Policy{Line: list.Policies[i], Work: work[list.Policies[i].Policy]}
		s.Policies[i].judge(s)
	}
	return s, nil
}

func readAudit(ctx context.Context, conn *pgx.Conn, slot string) (audit Audit, err error) {
	audit.Required, audit.Slot = slot != "", slot
	err = conn.QueryRow(ctx, `
		select b.at, coalesce(i.doubted >= b.id, false), coalesce((select max(h.number) from lapse.history h), 0)
		  from (select max(at) as at, max(id) as id from lapse.heartbeat) b
		  left join lapse.installation i on true`).Scan(&audit.LastBeat, &audit.Revoked, &audit.History)
	if err != nil {
		return audit, fmt.Errorf("read the auditor's heartbeats: %w", err)
	}
	if slot == "" {
		return audit, nil
	}
	state, err := replication.ReadSlot(ctx, conn, slot)
	if err == nil && state.Exists {
		audit.Exists, audit.Active, audit.Lost = true, state.Active, state.Lost()
		audit.Behind, audit.Held, audit.Headroom = state.Behind(), state.Held(), state.SafeWALSize
	}
	if err == nil && audit.Active && audit.LastBeat != nil {
		audit.Watching, err = readWatching(ctx, conn, state.ActivePID, *audit.LastBeat)
	}
	return audit, err
}

// watching is how long an auditor checks whether another one writes the log.
const watching = 2 * time.Minute

// readWatching returns for how long the auditor whose process reads the slot may still watch the log. Not every login can see when another
// login's session began; then it counts from the server's start.
func readWatching(ctx context.Context, conn *pgx.Conn, reader int32, beat time.Time) (left float64, err error) {
	err = conn.QueryRow(ctx, `
		select coalesce((select greatest(0, extract(epoch from coalesce(a.backend_start, s.at) + $3 - clock_timestamp()))::float8
		                   from (select pg_postmaster_start_time() as at) s
		                   left join pg_stat_activity a on a.pid = $1
		                  where s.at > $2), 0)`, reader, beat, watching).Scan(&left)
	if err != nil {
		return 0, fmt.Errorf("ask since when the slot is read: %w", err)
	}
	return left, nil
}

// readProcesses returns what executors reported within two minutes, by policy; "" is the process as a whole.
func readProcesses(ctx context.Context, conn *pgx.Conn) (map[schemas.PolicyName][]Process, error) {
	rows, err := conn.Query(ctx, `
		select coalesce(g.name, ''), w.holder, w.state, w.reason, w.held_back, w.since, w.next_try, w.at,
		       case when clock_timestamp() - w.at > $1 then extract(epoch from clock_timestamp() - w.at) else 0 end::float8
		  from lapse.worker w
		  left join lapse.gate g on g.policy_id = w.policy_id
		 where w.at > clock_timestamp() - interval '2 minutes' and (w.policy_id = 0 or g.policy_id is not null) and w.holder <> $2
		 order by w.holder, w.policy_id`, silence, record.LastPass)
	if err != nil {
		return nil, fmt.Errorf("ask what executors are at: %w", err)
	}
	all := map[schemas.PolicyName][]Process{}
	var name schemas.PolicyName
	var p Process
	_, err = pgx.ForEachRow(rows, []any{&name, &p.Holder, &p.State, &p.Reason, &p.HeldBack, &p.Since, &p.NextTry, &p.At, &p.Silent}, func() error {
		all[name] = append(all[name], p)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("ask what executors are at: %w", err)
	}
	return all, nil
}

// NeedsPerson reports whether due rows stay, or the audit waits, until a person acts: the command's exit code is then 3.
func (s *Status) NeedsPerson() bool {
	return len(s.Unattended) > 0 || len(s.Needing()) > 0 || s.Alarmed() || s.Audit.NeedsPerson()
}

// Alarmed reports whether the auditor has stopped every deletion, which it never allows again by itself.
func (s *Status) Alarmed() bool { return s.Paused != nil && s.Paused.Alarm }

// NeedsPerson reports whether the audit cannot go on until a person acts: its slot is missing, lost or nearly lost, or the auditor says so. One
// that nobody runs does not count: executors at work report that after a minute, and then the policies need a person.
func (a *Audit) NeedsPerson() bool {
	return a.Required && (!a.Exists || a.Lost || a.nearlyLost() || a.Revoked)
}

// nearlyLost reports whether a quarter is left of the log that the server may keep for the slot, or less: deletion stops there.
func (a *Audit) nearlyLost() bool { return a.Headroom != nil && *a.Headroom <= a.Held/3 }

// Running returns the executors that report that they run.
func (s *Status) Running() []*Process {
	var all []*Process
	for i := range s.Executors {
		if e := &s.Executors[i]; e.Silent == 0 {
			all = append(all, e)
		}
	}
	return all
}

// ExecutorsText is the line about the processes that delete.
func (s *Status) ExecutorsText() string {
	if len(s.Executors) == 0 {
		text := "none has said within two minutes that it runs"
		if late := record.UnattendedText(s.Unattended); late != "" {
			text += ": " + late
		}
		return text + ": start `lapse run` or `lapse serve`"
	}
	reasons, silent, runs := "", "", 0
	for i := range s.Executors {
		e := &s.Executors[i]
		if e.Silent > 0 {
			silent += fmt.Sprintf("; %s has been silent for %s: killed, or hung", e.Holder, e.silent())
			continue
		}
		runs++
		if e.Reason != "" && !strings.Contains(reasons, e.Reason) {
			reasons += "; " + e.State + ": " + e.Reason
		}
	}
	if runs == 0 {
		return "none that says so" + silent
	}
	return fmt.Sprint(runs) + cmp.Or(reasons, ", running") + silent
}
