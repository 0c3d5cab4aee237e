package status

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/schemas"
)

// DeletedDay is how many rows a policy deleted on one day, in UTC.
type DeletedDay struct {
	Policy  schemas.PolicyName `json:"policy"`
	Day     time.Time          `json:"day"`
	Deleted int64              `json:"deleted"`
}

// ReadDeletedDays counts deleted rows for the days from from until before another, for the policies in force: from the ledger, and from the
// summary that prune kept of it. It reads as many rows of the ledger as there were batches on those days, by an index on their begin; it
// reads all records of dropped partitions.
func ReadDeletedDays(ctx context.Context, conn *pgx.Conn, from, before time.Time) ([]DeletedDay, error) {
	return readDays(ctx, conn, besideLedger+`
		 union all
		select b.policy_id, (b.started_at at time zone 'UTC')::date, r.deleted
		  from lapse.batch b
		  join lapse.batch_result r on r.batch = b.batch
		 where b.started_at >= $1 and b.started_at < $2`, from, before)
}

// ReadPrunedDays is ReadDeletedDays for days before LedgerBegins: it does not read the ledger.
func ReadPrunedDays(ctx context.Context, conn *pgx.Conn, from, before time.Time) ([]DeletedDay, error) {
	return readDays(ctx, conn, besideLedger, from, before)
}

// besideLedger reads the summary that prune kept of the ledger, and partitions dropped whole.
const besideLedger = `
		select d.policy_id, d.day, d.deleted from lapse.deleted_day d where d.day >= ($1::timestamptz at time zone 'UTC')::date and d.day < ($2::timestamptz at time zone 'UTC')::date
		 union all
		select p.policy_id, (p.dropped_at at time zone 'UTC')::date, p.rows
		  from lapse.dropped p
		 where p.dropped_at >= $1 and p.dropped_at < $2`

func readDays(ctx context.Context, conn *pgx.Conn, counted string, from, before time.Time) ([]DeletedDay, error) {
	all, err := database.Collect[DeletedDay](ctx, conn, `
		select g.name, x.day, sum(x.deleted)::bigint
		  from (`+counted+`) x (policy_id, day, deleted)
		  join lapse.gate g on g.policy_id = x.policy_id and g.state <> 'dropped'
		 group by g.name, x.day
		 order by g.name, x.day`, from, before)
	if err != nil {
		return nil, fmt.Errorf("count what was deleted by day: %w", err)
	}
	return all, nil
}

// LedgerBegins is the day of the oldest batch in the ledger, in UTC; zero if the ledger is empty.
func LedgerBegins(ctx context.Context, conn *pgx.Conn) (time.Time, error) {
	var oldest *time.Time
	if err := conn.QueryRow(ctx, "select min(b.started_at) from lapse.batch b").Scan(&oldest); err != nil {
		return time.Time{}, fmt.Errorf("look for the oldest batch of the ledger: %w", err)
	}
	if oldest == nil {
		return time.Time{}, nil
	}
	return Day(*oldest), nil
}

// Day is the day of an instant, in UTC.
func Day(t time.Time) time.Time { return t.UTC().Truncate(24 * time.Hour) }
