package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/executor/batch"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/schemas"
)

// entered logs, once for each cause in a run, that a row was entered in the quarantine. Only `lapse quarantine list` names the row itself.
func (w *worker) entered(ctx context.Context, t *turn, a *batch.Assignment, begun *batch.Start) {
	cause := &ServerError{}
	var query string
	err := w.session.Control.QueryRow(ctx, `
		select `+obstacleColumns+`
		  from lapse.quarantine q
		 where q.policy_id = $1 and q.leaf = $2 and q.tried_at >= $3
		 order by q.tried_at desc
		 limit 1`, a.Policy, a.Leaf, begun.At).Scan(cause.fields()...)
	if errors.Is(err, pgx.ErrNoRows) {
		return // a trigger kept the row without an error
	}
	if err == nil && cause.Constraint != "" {
		query, err = run.Referring(ctx, w.session.Control, t.policy, cause.Table, cause.Constraint)
	}
	if err != nil {
		w.log.Warn("a row was entered in the quarantine; the cause is not known", "policy", a.Name, "error", stripped("read the quarantine", err))
		return
	}
	if !t.memory.run.newCause(cause) {
		return
	}
	facts := []any{"policy", a.Name, "relation", a.Leaf, "error", error(cause), "see", fmt.Sprintf("lapse quarantine list %s", a.Name)}
	if query != "" {
		facts = append(facts, "finds_referring_rows", query)
	}
	w.log.Warn("a row could not be deleted, and is in quarantine; other rows of this run with the same cause are not logged", facts...)
}

// obstacleColumns are the error's columns in the quarantine, and fields the variables to scan them into.
const obstacleColumns = `q.sqlstate, coalesce(q.relation, ''), coalesce(q.constraint_name, ''), coalesce(q.column_name, ''), coalesce(q.trigger_name, ''),
	coalesce(q.trigger_function, '')`

func (e *ServerError) fields() []any {
	return []any{&e.SQLState, &e.Table, &e.Constraint, &e.Column, &e.Trigger, &e.Function}
}

// quarantined is what a policy has in quarantine.
type quarantined struct {
	rows      int64
	obstacles []Obstacle // the most frequent ones first
}

// Obstacle is what blocks a number of rows, or the first row of a shard.
type Obstacle struct {
	Rows       int64  `json:"rows,omitempty"` // 0 if it blocks a shard that was put aside
	SQLState   string `json:"sqlstate"`
	Table      string `json:"table,omitempty"`
	Constraint string `json:"constraint,omitempty"`
	Column     string `json:"column,omitempty"`
	Trigger    string `json:"trigger,omitempty"`
	Function   string `json:"function,omitempty"`
}

// err returns the obstacle as the error that caused it.
func (o *Obstacle) err() *ServerError {
	return &ServerError{SQLState: o.SQLState, Table: o.Table, Constraint: o.Constraint, Column: o.Column, Trigger: o.Trigger, Function: o.Function}
}

// mostObstacles is how many obstacles are listed separately.
const mostObstacles = 5

// quarantineOf reads what a policy has in quarantine.
func quarantineOf(ctx context.Context, conn *pgx.Conn, policy schemas.PolicyID) (r quarantined, err error) {
	rows, err := conn.Query(ctx, `
		select sum(count(*)) over ()::bigint, count(*), `+obstacleColumns+`
		  from lapse.quarantine q
		 where q.policy_id = $1
		 group by 3, 4, 5, 6, 7, 8
		 order by count(*) desc, 3, 4, 5, 6, 7
		 limit $2`, policy, mostObstacles)
	if err == nil {
		var count int64
		var e ServerError
		_, err = pgx.ForEachRow(rows, append([]any{&r.rows, &count}, e.fields()...), func() error {
			r.obstacles = append(r.obstacles, Obstacle{count, e.SQLState, e.Table, e.Constraint, e.Column, e.Trigger, e.Function})
			return nil
		})
	}
	if err != nil {
		return r, fmt.Errorf("count the rows in quarantine: %w", err)
	}
	return r, nil
}

// quarantinedSince returns the server's time before the table is searched for due rows, if the policy has rows in quarantine; otherwise
// zero.
func (w *worker) quarantinedSince(ctx context.Context, p *record.InForce) (since time.Time, err error) {
	if p.Quarantine.Rows == 0 {
		return since, nil
	}
	if err := w.session.Control.QueryRow(ctx, `select clock_timestamp()`).Scan(&since); err != nil {
		return since, fmt.Errorf("ask for the server's time: %w", err)
	}
	return since, nil
}

// forgive removes rows from the quarantine that could have been tried since an instant but were not, although the whole table was
// searched since: they are gone, or no longer due. It removes none since the zero instant. It returns what is left.
//
//	crash before it    they are removed after the next search of the whole table
func (w *worker) forgive(ctx context.Context, p *record.InForce, since time.Time) (quarantined, error) {
	if !since.IsZero() {
		if _, err := w.session.Control.Exec(ctx, `select lapse.forgive($1, $2)`, p.ID, since); err != nil {
			return quarantined{}, fmt.Errorf("forgive the rows in quarantine that are gone: %w", err)
		}
	}
	if since.IsZero() && p.Quarantine.Rows == 0 {
		return quarantined{}, nil
	}
	return quarantineOf(ctx, w.session.Control, p.ID)
}

// leftInQuarantine returns what a run leaves in quarantine. If rows were locked, or a shard was put aside, the table was not searched whole.
func (w *worker) leftInQuarantine(ctx context.Context, t *turn, left *runState) (quarantined, error) {
	r, err := quarantineOf(ctx, w.session.Control, t.policy.ID)
	if err != nil || r.rows == 0 || left.lockedRows || left.aside > 0 {
		return r, err
	}
	return w.forgive(ctx, t.policy, t.begun().StartedAt)
}
