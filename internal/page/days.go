package page

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/status"
	"lapse/schemas"
)

const (
	// daysShown is a year, including today.
	daysShown = 365
	// daysFresh is longer than a status stays fresh, because counting today reads all of today's batches.
	daysFresh = 2 * time.Minute
	// daysSettle is how long after its end a day is counted for the last time: the batches that began in it have ended by then.
	daysSettle = time.Hour
	// slowDays is how many statements of one reading may reach the statement timeout.
	slowDays = 2
)

// deleted is the number of deleted rows by policy and day.
type deleted struct {
	First     time.Time // the first day; the others follow, up to today
	Policies  map[schemas.PolicyName][]int64
	Uncounted []bool // days that could not be counted in time, or that are not counted yet
}

// all is the sum over the policies by day.
func (d *deleted) all() []int64 {
	sums := make([]int64, daysShown)
	for _, days := range d.Policies {
		for i, n := range days {
			sums[i] += n
		}
	}
	return sums
}

// counter counts days. It counts a past day only once and remembers it. Not safe for concurrent use.
type counter struct {
	days map[time.Time]day
}

// day is what the counter knows of one day.
type day struct {
	deleted map[schemas.PolicyName]int64
	over    bool // its count is final
	failed  bool // counting exceeded the statement timeout: it is not tried again once the day is over
}

// count reads the days that are not known yet, newest first. It leaves those for which it has no time to the next call.
func (c *counter) count(ctx context.Context, conn *pgx.Conn) (*deleted, error) {
	var now time.Time
	if err := conn.QueryRow(ctx, "select clock_timestamp()").Scan(&now); err != nil {
		return nil, err
	}
	today := status.Day(now)
	first := today.AddDate(0, 0, 1-daysShown)
	begins, err := status.LedgerBegins(ctx, conn)
	if err != nil {
		return nil, err
	}
	if begins.IsZero() || begins.After(today) {
		begins = today
	}
	if begins.Before(first) {
		begins = first
	}
	slow := 0
	for at := today; !at.Before(begins) && slow < slowDays; at = at.AddDate(0, 0, -1) {
		if c.days[at].over {
			continue
		}
		before := at.AddDate(0, 0, 1)
		found, err := status.ReadDeletedDays(ctx, conn, at, before)
		if ctx.Err() != nil || schemas.StateOf(err) == schemas.SQLStateLockNotAvailable {
			break
		}
		canceled := schemas.StateOf(err) == schemas.SQLStateQueryCanceled
		if err != nil && !canceled {
			return nil, err
		}
		if canceled {
			slow++
		}
		c.days[at] = day{deleted: byPolicy(found), over: now.Sub(before) > daysSettle, failed: canceled}
	}
	if err := c.pruned(ctx, conn, first, begins, now); err != nil && ctx.Err() == nil && schemas.StateOf(err) != schemas.SQLStateQueryCanceled {
		return nil, err
	}
	return c.known(first), nil
}

// pruned reads the days from before the ledger's beginning, in one statement.
func (c *counter) pruned(ctx context.Context, conn *pgx.Conn, first, begins, now time.Time) error {
	var missing bool
	for at := first; at.Before(begins); at = at.AddDate(0, 0, 1) {
		missing = missing || !c.days[at].over
	}
	if !missing {
		return nil
	}
	found, err := status.ReadPrunedDays(ctx, conn, first, begins)
	if err != nil {
		return err
	}
	for at := first; at.Before(begins); at = at.AddDate(0, 0, 1) {
		if !c.days[at].over {
			c.days[at] = day{deleted: map[schemas.PolicyName]int64{}, over: now.Sub(at.AddDate(0, 0, 1)) > daysSettle}
		}
	}
	for _, d := range found {
		if at := c.days[status.Day(d.Day)]; at.deleted != nil {
			at.deleted[d.Policy] = d.Deleted
		}
	}
	return nil
}

func byPolicy(found []status.DeletedDay) map[schemas.PolicyName]int64 {
	all := map[schemas.PolicyName]int64{}
	for _, d := range found {
		all[d.Policy] = d.Deleted
	}
	return all
}

// known copies what is known, and forgets the days before the first one.
func (c *counter) known(first time.Time) *deleted {
	d := &deleted{First: first, Policies: map[schemas.PolicyName][]int64{}, Uncounted: make([]bool, daysShown)}
	for at := range c.days {
		if at.Before(first) {
			delete(c.days, at)
		}
	}
	for i := range daysShown {
		is, known := c.days[first.AddDate(0, 0, i)]
		d.Uncounted[i] = !known || is.failed
		for policy, n := range is.deleted {
			if d.Policies[policy] == nil {
				d.Policies[policy] = make([]int64, daysShown)
			}
			d.Policies[policy][i] = n
		}
	}
	return d
}
