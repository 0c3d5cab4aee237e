package planner

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Trip says that more of a policy's table was due than its max_fraction, so that its next run was not begun.
type Trip struct {
	At        time.Time
	Due, Rows int64 // rows that were due, and those of the table
}

// Error says what to do.
func (t *Trip) Error() string {
	return fmt.Sprintf("%d of about %d rows were due at %s, more than max_fraction allows at once", t.Due, t.Rows, t.At.UTC().Format(time.RFC3339))
}

// judgeTimeout is how long counting may take for Judge. It is below the time that an executor waits for an answer.
const judgeTimeout = "15s"

// Judgement is what max_fraction is held against.
type Judgement struct {
	Due  int64
	Rows int64 // of the table, by statistics; less than 0: not known
}

// Trips reports whether a run of p would go beyond max_fraction, and beyond what was accepted.
func (j *Judgement) Trips(p *InForce) bool {
	return float64(j.Due-p.Accepted) > p.Limits.MaxFraction*float64(j.Rows)
}

// tableRowsSQL is PostgreSQL's own estimate: rows per page as the last ANALYZE or VACUUM found them, times the pages there are.
const tableRowsSQL = `
	select case when bool_and(size = 0 or c.reltuples >= 0 and c.relpages > 0)
	            then coalesce(sum(case when size > 0 then c.reltuples::float8 / c.relpages * (size / current_setting('block_size')::int) end), 0)::bigint
	            else -1 end
	  from lapse.leaves($1) l
	  join pg_class c on c.oid = l.relation
	 cross join lateral (select pg_relation_size(c.oid)) s(size)`

// Judge counts what is due under a policy, over a session whose state does not matter: the policy's survey function runs in it.
// The rows of the table are read over q. Nothing is changed.
func Judge(ctx context.Context, conn *pgx.Conn, q Querier, p *InForce) (j Judgement, err error) {
	if err := q.QueryRow(ctx, tableRowsSQL, p.TableOID).Scan(&j.Rows); err != nil {
		return j, fmt.Errorf("read how many rows %s has: %w", p.TableName, err)
	}
	if err := cleanSession(ctx, conn); err != nil {
		return j, err
	}
	_, err = conn.Exec(ctx, "set statement_timeout = '"+judgeTimeout+"'", pgx.QueryExecModeSimpleProtocol)
	if err == nil {
		err = conn.QueryRow(ctx, "select due from "+SurveyFunction(p.ID, p.Version)+"(clock_timestamp(), null)", pgx.QueryExecModeDescribeExec).Scan(&j.Due)
	}
	if err != nil {
		err = fmt.Errorf("count what is due, for max_fraction: %w", err)
	}
	if cleaned := cleanSession(ctx, conn); err == nil {
		err = cleaned
	}
	return j, err
}

// TripBreaker opens the breaker. Durable when it returns, unless q is a transaction.
func TripBreaker(ctx context.Context, q Querier, p *InForce, j Judgement) error {
	var nothing any
	if err := q.QueryRow(ctx, `select lapse.trip($1, $2, $3, $4)`, p.ID, p.Version, j.Due, j.Rows).Scan(&nothing); err != nil {
		return fmt.Errorf("open the breaker of policy %s: %w", p.Name, err)
	}
	return nil
}

// AcceptTrip lets the next run of a policy delete so many rows, and as many more as max_fraction allows. Its transaction is the
// catalog owner's.
func AcceptTrip(ctx context.Context, tx pgx.Tx, p *InForce, rows int64) error {
	_, err := tx.Exec(ctx, `update lapse.breaker set accepted = $3, accepted_at = clock_timestamp() where policy_id = $1 and version = $2`, p.ID, p.Version, rows)
	if err != nil {
		return fmt.Errorf("accept what is due under policy %s: %w", p.Name, err)
	}
	return nil
}
