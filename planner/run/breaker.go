package run

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/record"
)

// TripBreaker opens the breaker. Durable when it returns, unless q is a transaction.
func TripBreaker(ctx context.Context, q database.Querier, p *record.InForce, t *record.Trip) error {
	var nothing any
	err := q.QueryRow(ctx, `select lapse.trip($1, $2, $3, $4, $5, $6)`, p.ID, p.Version, string(t.Cause), t.Due, max(t.Rows, 0), t.Compared).Scan(&nothing)
	if err != nil {
		return fmt.Errorf("open the breaker of policy %s: %w", p.Name, err)
	}
	return nil
}

// AcceptTrip lets the next run of a policy delete so many rows and no more, whatever is due. Its transaction is the catalog owner's.
func AcceptTrip(ctx context.Context, tx pgx.Tx, p *record.InForce, rows int64) error {
	_, err := tx.Exec(ctx, `update lapse.breaker set accepted = $3, accepted_at = clock_timestamp() where policy_id = $1 and version = $2`, p.ID, p.Version, rows)
	if err != nil {
		return fmt.Errorf("accept what is due under policy %s: %w", p.Name, err)
	}
	return nil
}
