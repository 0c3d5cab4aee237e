package database

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/schemas"
)

// A count holds ACCESS SHARE on the table, and on each partition that may have due rows, until it ends. An ALTER TABLE waits for that, and every
// other session then waits for the ALTER TABLE. So another session watches a count, and ends it if that happens.

// ErrAwaited says that a count was ended because a session waited to change the table or one of its partitions. Retry later.
var ErrAwaited = errors.New("somebody waits to change the table")

// watchInterval is how often a count is checked, and so how often pg_locks is read.
const watchInterval = 100 * time.Millisecond

// AwaitedSQL reports whether a session waits for an exclusive lock on a relation that a backend has locked. A reader blocks no other lock.
const AwaitedSQL = `
	  with lock as materialized (
	    select k.pid, k.database, k.relation, k.mode, k.granted from pg_locks k where k.locktype = 'relation')
	select exists (
	         select from lock w
	           join lock o on o.database = w.database and o.relation = w.relation and o.granted and o.pid = $1
	          where not w.granted and w.mode = 'AccessExclusiveLock' and w.pid <> $1)`

// GivingWay runs a count in conn, and ends it with ErrAwaited if another session waits for its locks. It reads the locks over another session; if
// over is nil, over one like conn, which it opens when the count has taken a while. It ends the count by a cancel request, not by
// pg_cancel_backend, because a login that switched to a role may not cancel its own sessions. A late cancel request finds an idle session, which
// ignores it: nothing else is sent to conn before the watch is over.
func GivingWay(ctx context.Context, conn *pgx.Conn, over Querier, count func() error) error {
	counting, counted := context.WithCancel(ctx)
	defer counted()
	watched := make(chan bool, 1)
	go func() { watched <- (&watch{ctx: ctx, counting: counting, conn: conn, over: over}).run() }()
	err := count()
	counted()
	if gave := <-watched; gave && schemas.StateOf(err) == schemas.SQLStateQueryCanceled {
		return fmt.Errorf("%w: %w", ErrAwaited, err)
	}
	return err
}

// watch watches one count.
type watch struct {
	ctx      context.Context
	counting context.Context // ends with the count
	conn     *pgx.Conn
	over     Querier
}

// run reports whether it canceled the count. If it cannot read the locks any more, the count still has its statement_timeout, and the other session's
// next user gets the error.
func (w *watch) run() (gave bool) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-w.counting.Done():
			return false
		case <-tick.C:
		}
		if w.over == nil {
			own, err := pgx.ConnectConfig(w.counting, w.conn.Config())
			if err != nil {
				return false
			}
			defer Close(own)
			w.over = own
		}
		var awaited bool
		err := w.over.QueryRow(w.ctx, AwaitedSQL, int32(w.conn.PgConn().PID())).Scan(&awaited) // #nosec G115 -- a process id
		switch {
		case err != nil:
			return false
		case awaited:
			_ = w.conn.PgConn().CancelRequest(w.ctx) // the request may have arrived despite an error
			return true
		}
	}
}

// Trouble says what blocks only one policy, "" for an error that concerns more.
func Trouble(err error) string {
	var server *pgconn.PgError
	switch state := schemas.StateOf(err); {
	case state == "":
		return ""
	case errors.Is(err, ErrAwaited):
		return ErrAwaited.Error() + ", and counting gave way: ask again later"
	case strings.HasPrefix(state, "LP") && errors.As(err, &server):
		return server.Message // a text of ours, with names and no values
	case state == schemas.SQLStateInsufficientPrivilege:
		return "its table, or one that its condition reads, is another owner's by now, or a right was taken away: run `lapse apply`"
	case state == schemas.SQLStateUndefinedFunction:
		return "its functions are gone, or another version of lapse made them: run `lapse apply`"
	case state == schemas.SQLStateLockNotAvailable, state == schemas.SQLStateQueryCanceled:
		return "another session holds a lock on the table, or counting takes too long (SQLSTATE " + state + ")"
	default:
		return "counting fails with SQLSTATE " + state
	}
}
