package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"lapse/schemas"
)

// lastRun is a policy's last run.
type lastRun struct {
	Started time.Time `json:"started_at"`
	Deleted int64     `json:"deleted"`
	Ended   string    `json:"ended"` // how
}

// readLastRun sums up a run's shards.
func readLastRun(ctx context.Context, conn *pgx.Conn, run uuid.UUID) (*lastRun, error) {
	var r lastRun
	err := conn.QueryRow(ctx, `
		select r.started_at, coalesce(sum(s.deleted), 0)::bigint,
		       case when r.ended_by is not null then 'by ' || r.ended_by
		            when bool_or(not s.done and not s.aside) then 'not yet'
		            when bool_or(s.aside and not s.done) then 'with shards put aside'
		            when bool_or(s.left_behind) then 'with locked rows left'
		            else 'whole' end
		  from lapse.run r
		  left join lapse.shard s on s.run = r.run
		 where r.run = $1
		 group by r.run, r.started_at, r.ended_by`, run).Scan(&r.Started, &r.Deleted, &r.Ended)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the last run: %w", err)
	}
	return &r, nil
}

// readReason is why a policy is in its state, "" where nobody said.
func readReason(ctx context.Context, conn *pgx.Conn, id schemas.PolicyID) (reason string, err error) {
	err = conn.QueryRow(ctx, `
		select coalesce((select s.reason from lapse.policy_state s where s.policy_id = $1 order by s.changed_at desc limit 1), '')`,
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
	rows = fmt.Sprint(r.Deleted)
	if r.Ended != "whole" {
		rows += ", ended " + r.Ended
		if r.Ended == "not yet" {
			rows = fmt.Sprintf("%d, goes on", r.Deleted)
		}
	}
	return r.Started.UTC().Format(time.RFC3339), rows
}
