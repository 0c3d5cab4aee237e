package survey

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/expiry"
	"lapse/planner/functions"
	"lapse/planner/record"
	"lapse/schemas"
)

// Remains is what is due under a policy and was not deleted.
type Remains struct {
	Due    int64
	Held   int64      // due rows under a hold, which Due leaves out; counted no further than Due
	Exact  bool       // false: the counts are estimates
	Oldest *time.Time // when the oldest of them fell due; nil if not known
}

// mostRemains is how far Remaining counts.
const mostRemains = 100_000

// Remaining counts what was due under a policy at an instant and is still there. The policy's survey function runs in conn, a session whose
// state does not matter; everything else is read over q, another session. It changes nothing. Call it only if something is known to be
// left: reading past dead rows costs as much as reading them. It yields to sessions that wait to change the table (see ErrAwaited).
func Remaining(ctx context.Context, conn *pgx.Conn, q database.Querier, p *record.InForce, at time.Time) (r Remains, err error) {
	if err := cleanSession(ctx, conn); err != nil {
		return r, err
	}
	err = remains(ctx, conn, q, p, at, mostRemains, &r)
	if cleaned := cleanSession(ctx, conn); err == nil {
		err = cleaned
	}
	return r, err
}

// mostStaying is how far Staying counts, and stayTimeout how long it may take: it is called repeatedly while nothing is deleted.
const (
	mostStaying = 10_000
	stayTimeout = "2s"
)

// Staying counts what is due under a policy that cannot delete it: as Remaining, up to mostStaying, and without waiting for a locked table. If that
// takes too long the result is PostgreSQL's estimate.
func Staying(ctx context.Context, conn *pgx.Conn, q database.Querier, p *record.InForce, at time.Time) (r Remains, err error) {
	if err := cleanSession(ctx, conn); err != nil {
		return r, err
	}
	if err = setBounds(ctx, conn, stayTimeout); err == nil {
		err = remains(ctx, conn, q, p, at, mostStaying, &r)
		if schemas.StateOf(err) == schemas.SQLStateQueryCanceled && !errors.Is(err, database.ErrAwaited) {
			err = remains(ctx, conn, q, p, at, 0, &r)
		}
	}
	if cleaned := cleanSession(ctx, conn); err == nil {
		err = cleaned
	}
	return r, err
}

// TakeDown records the result of Staying for status and metrics. Durable when it returns, unless q is a transaction.
func (r *Remains) TakeDown(ctx context.Context, q database.Querier, p *record.InForce) error {
	var nothing any
	if err := q.QueryRow(ctx, `select lapse.counted($1, $2, $3, $4, $5)`, p.ID, p.Version, r.Due, r.Exact, r.Oldest).Scan(&nothing); err != nil {
		return fmt.Errorf("record what is due under policy %s: %w", p.Name, err)
	}
	return nil
}

// remains calls the survey function of a policy in a clean session.
func remains(ctx context.Context, conn *pgx.Conn, q database.Querier, p *record.InForce, at time.Time, most int64, r *Remains) error {
	err := database.GivingWay(ctx, conn, q, func() error {
		return conn.QueryRow(ctx, "select s.due, coalesce(s.held, 0), s.due_is = 'exact' and coalesce(s.held, 0) <= $2, "+fellDue("$3")+" from "+functions.SurveyFunction(p.ID, p.Version)+"($1, $2, 0) s",
			pgx.QueryExecModeDescribeExec, at, most, dueAfter(p.Definition.Expire)).Scan(&r.Due, &r.Held, &r.Exact, &r.Oldest)
	})
	if err != nil {
		return fmt.Errorf("count what is left under policy %s: %w", p.Name, err)
	}
	return nil
}

// fellDue is when the oldest row of a survey s fell due, in SQL; after names the parameter with dueAfter's result. It is null if that is nil.
// The intervals are added one after the other, as in a policy's condition: of their sum, the months would come before the days.
func fellDue(after string) string {
	return "(select s.oldest + a.a[1]::interval + coalesce(a.a[2], '0')::interval from (select " + after + "::text[]) a(a))"
}

// dueAfter returns how long after the instant that orders rows they fall due; nil if that differs from row to row.
func dueAfter(k expiry.Kind) (intervals []string) {
	switch k := k.(type) {
	case *expiry.Age:
		return []string{k.After.String()}
	case *expiry.Sidecar:
		return []string{k.After.String()}
	case *expiry.Epoch:
		return []string{k.After.String()}
	case *expiry.ISO8601:
		return []string{k.After.String()}
	case *expiry.NumberOrText:
		return []string{k.After.String()}
	case *expiry.Bucket:
		return []string{k.Span.String(), k.After.String()}
	case *expiry.Expression:
		return []string{"0"}
	default:
		return nil
	}
}
