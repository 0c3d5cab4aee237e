package planner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lapse/schemas"
)

// A counting holds ACCESS SHARE on the table, and on each partition that may have due rows, until it ends. An ALTER TABLE waits for that,
// and everybody else waits behind the ALTER TABLE. So the counting is watched over another session, and is ended when that happens.

// ErrAwaited says that a counting was ended because somebody waited to change the table, or one of its partitions. Ask again later.
var ErrAwaited = errors.New("somebody waits to change the table")

// watchInterval is how often a counting is looked at: pg_locks is read as often.
const watchInterval = 100 * time.Millisecond

// giveWaySQL cancels a backend if somebody waits for a lock that keeps readers out, on a relation that the backend has locked. A reader is
// in nobody else's way.
const giveWaySQL = `
	  with lock as materialized (
	    select k.pid, k.database, k.relation, k.mode, k.granted from pg_locks k where k.locktype = 'relation')
	select exists (
	         select from lock w
	           join lock o on o.database = w.database and o.relation = w.relation and o.granted and o.pid = $1
	          where not w.granted and w.mode = 'AccessExclusiveLock' and w.pid <> $1)
	       and pg_cancel_backend($1)`

// count asks the policy's survey function, and gives way. A cancel that comes late finds an idle session, which ignores it: nothing else is
// sent to that session before the watch is over.
func (c *counting) count(ctx context.Context, at time.Time, atMost *int64) (*found, error) {
	ended, watched := make(chan struct{}), make(chan bool, 1)
	go func() { watched <- c.watch(ctx, ended) }()
	f, err := callSurvey(ctx, c.conn, SurveyFunction(c.policy.ID, c.policy.Version), at, atMost)
	close(ended)
	if gave := <-watched; gave && schemas.StateOf(err) == schemas.SQLStateQueryCanceled {
		return nil, fmt.Errorf("%w: %w", ErrAwaited, err)
	}
	return f, err
}

// watch reports whether the counting was canceled. Where it cannot look any more the counting has its statement_timeout, and whoever asks
// the other session next is told.
func (c *counting) watch(ctx context.Context, ended <-chan struct{}) (gave bool) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return false
		case <-tick.C:
		}
		err := c.watcher.QueryRow(ctx, giveWaySQL, int32(c.conn.PgConn().PID())).Scan(&gave) // #nosec G115 -- a process id
		if err != nil || gave {
			return gave
		}
	}
}
