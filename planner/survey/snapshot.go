package survey

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/functions"
	"lapse/planner/record"
	"lapse/schemas"
)

// Counted is what was due under a policy in one snapshot.
type Counted struct {
	Due         int64 // and not held
	Overdue     int64 // for longer than the policy's latitude
	Held        int64
	Quarantined int64
	// OldestOver is the step of schemas.LatenessSteps, or 0, that the lateness of the oldest due row exceeds; nil if nothing is due or it is not known.
	OldestOver *int64
}

// Snapshot counts everything that is due under a policy, and publishes the three rows of lapse.snapshot: before the count, with the snapshot of the
// count, and with the result. It does nothing if the version has a snapshot younger than every. It writes the rows over control, each durable
// at once; the policy's survey function runs in conn, a session whose state does not matter, for at most most. It yields to sessions that wait to
// change the table.
//
//	crash after the first row     the snapshot was begun but never taken; the next one is taken when every has passed
//	crash after the second        it was taken, without a count
func Snapshot(ctx context.Context, conn, control *pgx.Conn, p *record.InForce, every, most time.Duration) (taken bool, err error) {
	var id *uuid.UUID
	if err := control.QueryRow(ctx, `select lapse.begin_snapshot($1, $2, $3)`, p.ID, p.Version, every).Scan(&id); err != nil {
		return false, fmt.Errorf("begin a snapshot of policy %s: %w", p.Name, err)
	}
	if id == nil {
		return false, nil
	}
	c, err := countSnapshot(ctx, conn, control, p, *id, most)
	if cleaned := cleanSession(ctx, conn); err == nil {
		err = cleaned
	}
	if why := notCounted(err, most); why != "" {
		_, err := control.Exec(ctx, `select lapse.end_snapshot($1, null, null, null, null, null, $2)`, *id, why)
		return true, err
	}
	if err == nil {
		_, err = control.Exec(ctx, `select lapse.end_snapshot($1, $2, $3, $4, $5, $6, null)`, *id, c.Due, c.Overdue, c.Held, c.Quarantined, c.OldestOver)
	}
	if err != nil {
		return true, fmt.Errorf("count what is due under policy %s: %w", p.Name, err)
	}
	return true, nil
}

// notCounted is why a snapshot has no count, as published: of a server's error only the SQLSTATE.
func notCounted(err error, most time.Duration) string {
	switch state := schemas.StateOf(err); {
	case errors.Is(err, database.ErrAwaited):
		return "another session waited to change the table"
	case state == schemas.SQLStateQueryCanceled:
		return "it takes longer than " + most.String()
	case state != "":
		return "error " + state
	default:
		return ""
	}
}

// countSnapshot counts in a transaction that sees one snapshot throughout.
func countSnapshot(ctx context.Context, conn, control *pgx.Conn, p *record.InForce, id uuid.UUID, most time.Duration) (c Counted, err error) {
	if err := cleanSession(ctx, conn); err != nil {
		return c, err
	}
	if err := setBounds(ctx, conn, fmt.Sprint(most.Milliseconds())); err != nil {
		return c, err
	}
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly})
	if err != nil {
		return c, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if _, err = conn.Exec(ctx, "set local enable_seqscan = on", pgx.QueryExecModeSimpleProtocol); err != nil {
		return c, err
	}
	var seen string
	var at time.Time
	if err := conn.QueryRow(ctx, `select pg_current_snapshot()::text, clock_timestamp()`).Scan(&seen, &at); err != nil {
		return c, err
	}
	if _, err := control.Exec(ctx, `select lapse.take_snapshot($1, $2::text::pg_snapshot, $3)`, id, seen, at); err != nil {
		return c, fmt.Errorf("publish the snapshot: %w", err)
	}
	if err := conn.QueryRow(ctx, `select count(*) from lapse.quarantine q where q.policy_id = $1`, p.ID).Scan(&c.Quarantined); err != nil {
		return c, err
	}
	count := func(latitude string) (due, held int64, oldest *time.Time, err error) {
		err = database.GivingWay(ctx, conn, control, func() error {
			return conn.QueryRow(ctx, "select s.due, coalesce(s.held, 0), "+fellDue("$3")+" from "+functions.SurveyFunction(p.ID, p.Version)+"($1::timestamptz - $2::text::interval, null, 0) s",
				pgx.QueryExecModeDescribeExec, at, latitude, dueAfter(p.Definition.Expire)).Scan(&due, &held, &oldest)
		})
		return due, held, oldest, err
	}
	var oldest *time.Time
	if c.Due, c.Held, oldest, err = count("0"); err != nil {
		return c, err
	}
	if oldest != nil {
		c.OldestOver = new(int64)
		if step := schemas.LatenessStep(*oldest, at); step > 0 {
			*c.OldestOver = schemas.LatenessSteps[step-1]
		}
	}
	if c.Overdue = c.Due; p.Spec.Latitude != "" {
		c.Overdue, _, _, err = count(p.Spec.Latitude)
	}
	return c, err
}
