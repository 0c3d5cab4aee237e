package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"lapse/internal/backoff"
	"lapse/internal/config"
	"lapse/planner"
	"lapse/replication"
	"lapse/schemas"
)

// watchInterval is how often --watch looks.
const watchInterval = 2 * time.Second

func (a *app) statusCommand() *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show how policies, deletion and audit stand",
		Long: fmt.Sprintf(`Shows in one screen whether deletion is paused, whether executors and auditor are at work, how far the replication slot is behind, and of
each policy its state, its last run, how far it is behind its schedule and what holds it back. It reads the catalog alone and counts
no rows of a table: "lapse plan" does. Where due rows stay it says why, in one of these words, how many and since when:

%s
The exit code is 3 where that needs a person: breaker, held_back, quarantine, guard and clock always, lock and limit once the oldest due row is
past the policy's latitude (a day where it has none); and where an armed policy is late by more than its latitude while no executor runs. With --watch it looks again every two seconds until Ctrl-C.`, reasonsHelp()),
		Example: "  lapse status\n  lapse status --watch\n  lapse status --json",
		Args:    cobra.NoArgs,
	}
	cmd.RunE = a.untilStopped(new(bool), func(cmd *cobra.Command) error {
		if watch {
			return a.watchStatus(cmd.Context())
		}
		s, err := a.readStatus(cmd.Context())
		if err != nil {
			return err
		}
		if err := a.showStatus(s); err != nil {
			return err
		}
		if s.needsPerson() {
			return errNeedsPerson
		}
		return nil
	})
	cmd.Flags().BoolVar(&watch, "watch", false, "look again every two seconds, until stopped")
	a.verboseFlag(cmd, "print the tables too")
	a.jsonFlag(cmd)
	return cmd
}

// reasonsHelp are the words for why due rows stay, a line each.
func reasonsHelp() string {
	var b strings.Builder
	for _, reason := range schemas.HeldBackReasons {
		fmt.Fprintf(&b, "  %-12s%s\n", reason, reason.Means())
	}
	return b.String()
}

// needsPerson reports whether due rows stay until somebody has done something.
func (s *status) needsPerson() bool {
	return len(s.Unattended) > 0 || slices.ContainsFunc(s.Policies, func(p policyState) bool {
		return slices.ContainsFunc(p.Stays, func(stay planner.Stay) bool { return stay.NeedsPerson })
	})
}

// status is what `lapse status` shows.
type status struct {
	At        time.Time   `json:"at"` // the server's clock
	Paused    *halt       `json:"paused,omitempty"`
	Suspended string      `json:"suspended,omitempty"` // why no policy deletes: a restore, a promotion
	Audit     auditStatus `json:"audit"`
	Executors []process   `json:"executors"`
	// Unattended are policies that are late by more than their latitude, while no executor runs.
	Unattended []schemas.PolicyName `json:"unattended"`
	Policies   []policyState        `json:"policies"`
	LeftOver   []string             `json:"left_over,omitempty"` // roles that nothing needs
}

// auditStatus is what the server says of the audit.
type auditStatus struct {
	Required bool       `json:"required"`
	Slot     string     `json:"slot,omitempty"`
	Exists   bool       `json:"slot_exists"`
	Active   bool       `json:"slot_active"`
	Lost     bool       `json:"slot_lost,omitempty"`
	Behind   int64      `json:"behind_bytes"`             // log that the auditor has not confirmed
	Held     int64      `json:"held_bytes"`               // log that the server keeps for it
	Headroom *int64     `json:"headroom_bytes,omitempty"` // log that may be written before the slot is lost
	LastBeat *time.Time `json:"last_beat,omitempty"`      // when the auditor said last that it reads this server
	History  int        `json:"history"`
}

// process is an executor that said lately that it runs.
type process struct {
	Holder string `json:"holder"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
	// HeldBack is why due rows stay, as far as only this process knows; "" where they do not.
	HeldBack schemas.HeldBack `json:"held_back"`
	Since    time.Time        `json:"since"`              // it is in this state
	NextTry  *time.Time       `json:"next_try,omitempty"` // of what is stopped or waits, where that is known
	At       time.Time        `json:"at"`
	Silent   float64          `json:"silent_seconds,omitempty"` // for how long it has said nothing, where that is longer than it should
}

// silence is how long an executor that runs says nothing at most: it does each ten seconds, between two turns.
const silence = 25 * time.Second

// readStatus opens a session and asks.
func (a *app) readStatus(ctx context.Context) (*status, error) {
	owner, settings, err := a.openOwner(ctx, "lapse status")
	if err != nil {
		return nil, err
	}
	defer closeConn(owner.Conn)
	list, err := a.readPolicies(ctx, owner.Conn, settings)
	if err != nil {
		return nil, err
	}
	s := &status{At: list.at, Unattended: list.unattended, Suspended: list.restored, LeftOver: list.leftOver, Executors: []process{}, Policies: make([]policyState, len(list.lines))}
	if list.halt.Halted {
		s.Paused = &list.halt
	}
	if s.Audit, err = readAudit(ctx, owner.Conn, settings); err != nil {
		return nil, err
	}
	work, err := readProcesses(ctx, owner.Conn)
	if err != nil {
		return nil, err
	}
	s.Executors = append(s.Executors, work[""]...)
	for i := range list.lines {
		s.Policies[i] = policyState{policyLine: list.lines[i], Work: work[list.lines[i].Policy]}
		s.Policies[i].judge(s)
	}
	return s, nil
}

func readAudit(ctx context.Context, conn *pgx.Conn, settings *config.Settings) (audit auditStatus, err error) {
	audit.Required = settings.Audit == config.AuditRequired
	err = conn.QueryRow(ctx, `
		select (select max(b.at) from lapse.heartbeat b), coalesce((select max(h.number) from lapse.history h), 0)`).Scan(&audit.LastBeat, &audit.History)
	if err != nil {
		return audit, fmt.Errorf("read the auditor's heartbeats: %w", err)
	}
	if !audit.Required {
		return audit, nil
	}
	slot, err := replication.ReadSlot(ctx, conn, settings.Slot)
	if err != nil {
		return audit, err
	}
	audit.Slot, audit.Exists = settings.Slot, slot.Exists
	if slot.Exists {
		audit.Active, audit.Lost, audit.Behind, audit.Held, audit.Headroom = slot.Active, slot.Lost(), slot.Behind(), slot.Held(), slot.SafeWALSize
	}
	return audit, nil
}

// readProcesses returns what executors said within two minutes, by policy; "" is the process as a whole.
func readProcesses(ctx context.Context, conn *pgx.Conn) (map[schemas.PolicyName][]process, error) {
	rows, err := conn.Query(ctx, `
		select coalesce(g.name, ''), w.holder, w.state, w.reason, w.held_back, w.since, w.next_try, w.at,
		       case when clock_timestamp() - w.at > $1 then extract(epoch from clock_timestamp() - w.at) else 0 end::float8
		  from lapse.worker w
		  left join lapse.gate g on g.policy_id = w.policy_id
		 where w.at > clock_timestamp() - interval '2 minutes' and (w.policy_id = 0 or g.policy_id is not null) and w.holder <> $2
		 order by w.holder, w.policy_id`, silence, planner.LastPass)
	if err != nil {
		return nil, fmt.Errorf("ask what executors are at: %w", err)
	}
	all := map[schemas.PolicyName][]process{}
	var name schemas.PolicyName
	var p process
	_, err = pgx.ForEachRow(rows, []any{&name, &p.Holder, &p.State, &p.Reason, &p.HeldBack, &p.Since, &p.NextTry, &p.At, &p.Silent}, func() error {
		all[name] = append(all[name], p)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("ask what executors are at: %w", err)
	}
	return all, nil
}

// watchStatus shows the status again and again. A server that goes away meanwhile is waited for.
func (a *app) watchStatus(ctx context.Context) error {
	for first := true; ; first = false {
		s, err := a.readStatus(ctx)
		switch {
		case ctx.Err() != nil:
			return errors.Join(err, context.Cause(ctx))
		case err != nil && (first || !passing(err)):
			return err
		case err != nil:
			a.log.Warn("the server does not answer; looking again", "error", err)
		default:
			if a.width != nil && !a.asJSON {
				fmt.Fprint(a.raw(), clearScreen)
			} else if !first && !a.asJSON {
				fmt.Fprintln(a.out)
			}
			err = a.showStatus(s)
			if a.asJSON {
				err = a.answerJSON("lapse status", nil)
			}
			if err != nil {
				return err
			}
		}
		if err := backoff.Sleep(ctx, watchInterval); err != nil {
			return err
		}
	}
}
