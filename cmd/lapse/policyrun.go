package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/schemas"
)

// lastRun is a policy's last run, as all executors left it.
type lastRun struct {
	Started     time.Time  `json:"started_at"`
	EndedAt     *time.Time `json:"ended_at,omitempty"`
	Due         *int64     `json:"due,omitempty"` // where it was counted
	Deleted     int64      `json:"deleted"`
	Cascaded    int64      `json:"cascaded"`
	Batches     int64      `json:"batches"`
	Refreshed   int64      `json:"refreshed"`    // found due, and changed meanwhile
	SteppedOver int64      `json:"stepped_over"` // they resisted
	Partitions  int64      `json:"dropped_partitions"`
	LeftDue     *int64     `json:"left_due,omitempty"`
	LeftHeld    *int64     `json:"left_held,omitempty"`
	LeftResting *int64     `json:"left_resting,omitempty"`
	Watermark   *time.Time `json:"watermark,omitempty"` // nothing that fell due before is left
	Ended       string     `json:"ended"`               // how
	RestsSince  *time.Time `json:"rests_since,omitempty"`
	Rests       string     `json:"rests_because,omitempty"`
}

// goesOn is how a run ended that did not, and cutShort how one that nobody goes on with.
const (
	goesOn   = "not yet"
	cutShort = "cut short"
)

// readLastRun reads what a policy's last run did, also one that is no measure of the clock any more. What a former version's left nobody
// goes on with.
func readLastRun(ctx context.Context, conn *pgx.Conn, policy schemas.PolicyID) (*lastRun, error) {
	var r lastRun
	err := conn.QueryRow(ctx, `
		select r.started_at, r.ended_at, r.due, t.deleted, t.cascaded, t.batches, t.refreshed, t.stepped_over, r.dropped_partitions,
		       r.left_due, r.left_held, r.left_resting, r.watermark,
		       case when r.ended_by = 'accepted' then 'by the rows that were accepted'
		            when r.ended_by is not null then 'by ' || r.ended_by
		            when t.unfinished and r.version = g.version then $2
		            when t.unfinished or r.outcome = 'cut short' or r.outcome is null and r.lost_shards then $3
		            when t.aside > 0 then 'with shards put aside'
		            when t.locked then 'with locked rows left'
		            else 'whole' end,
		       case when r.version = g.version then r.rests_since end, coalesce(r.rests_because, '')
		  from lapse.gate g, lapse.run r, lapse.statistics(r.run) t
		 where g.policy_id = $1 and r.policy_id = g.policy_id
		 order by r.number desc
		 limit 1`, int32(policy), goesOn, cutShort).Scan(&r.Started, &r.EndedAt, &r.Due, &r.Deleted, &r.Cascaded, &r.Batches, &r.Refreshed, &r.SteppedOver, &r.Partitions,
		&r.LeftDue, &r.LeftHeld, &r.LeftResting, &r.Watermark, &r.Ended, &r.RestsSince, &r.Rests)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the last run: %w", err)
	}
	return &r, nil
}

// notes are what a person should know of the run.
func (r *lastRun) notes() []string {
	if r == nil {
		return nil
	}
	var notes []string
	switch r.Ended {
	case goesOn:
		notes = append(notes, "its last run goes on")
	case cutShort: // how others ended is said by why due rows stay
		notes = append(notes, "its last run was cut short")
	}
	if r.Rests != "" && r.RestsSince != nil {
		notes = append(notes, fmt.Sprintf("its run rests since %s: %s", r.RestsSince.UTC().Format(time.RFC3339), r.Rests))
	}
	if left := r.left(); left != "" {
		notes = append(notes, left)
	}
	return notes
}

// left says what a run left of what was due; "" where that is nothing, or not known.
func (r *lastRun) left() string {
	var kinds []string
	count := func(n int64, what string) {
		if n > 0 {
			kinds = append(kinds, fmt.Sprintf("%d %s", n, what))
		}
	}
	due, resting, held := value(r.LeftDue), value(r.LeftResting), value(r.LeftHeld)
	count(max(due-resting, 0), "locked or resisting")
	count(resting, "in quarantine")
	text := strings.Join(kinds, ", ")
	switch {
	case text == "":
	case r.Watermark == nil:
		text = "of what was due these are left: " + text
	default:
		text = fmt.Sprintf("nothing that fell due before %s is left, and since then %s", r.Watermark.UTC().Format(time.RFC3339), text)
	}
	if held > 0 {
		text = strings.TrimPrefix(text+"; "+heldText(held), "; ")
	}
	return text
}

// heldText says how many due rows are held.
func heldText(n int64) string {
	if n == 1 {
		return "1 row that was due is held"
	}
	return fmt.Sprintf("%d rows that were due are held", n)
}

func value(n *int64) int64 {
	if n == nil {
		return 0
	}
	return *n
}

// readReason is why a policy is in its state, "" where nobody said. That the auditor has passed, or that there is none, is how an armed
// policy came to be armed, and says nothing of why.
func readReason(ctx context.Context, conn *pgx.Conn, id schemas.PolicyID) (reason string, err error) {
	err = conn.QueryRow(ctx, `
		select coalesce((
		  select s.reason from lapse.policy_state s
		   where s.policy_id = $1
		     and not (s.state in ('arming', 'armed')
		              and (s.reason like 'no auditor to wait for %'
		                   or exists (select from lapse.gate g where g.policy_id = s.policy_id and g.state = 'armed')
		                      and (s.reason = 'waiting for the auditor' or s.reason like 'the auditor has passed %')))
		   order by s.changed_at desc limit 1), '')`,
		int32(id)).Scan(&reason)
	if err != nil {
		return "", fmt.Errorf("read why the policy is in its state: %w", err)
	}
	return reason, nil
}

// text is the run for the table.
func (r *lastRun) text() (when, rows string) {
	if r == nil {
		return "-", "-"
	}
	return r.Started.UTC().Format(time.RFC3339), fmt.Sprint(r.Deleted)
}
