package executor

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"lapse/schemas"
)

// runState is what is left of a run.
type runState struct {
	unfinished bool // some shards are in work or waiting
	aside      int  // number of shards that were put aside
	state      string
	retryAt    *time.Time // when the first of them is tried again
	lockedRows bool       // due rows are left because somebody had them locked
	lockedLeaf bool       // one of the shards that are put aside is: somebody had its whole leaf locked
	limited    bool       // it has reached a limit of the policy's: lapse.end_run
}

// leftOf reads what is left of a run.
func leftOf(ctx context.Context, conn *pgx.Conn, run uuid.UUID) (r runState, err error) {
	err = conn.QueryRow(ctx, `
		select coalesce(bool_or(not s.done and not s.aside), false), count(*) filter (where s.aside and not s.locked),
		       coalesce(min(s.sqlstate) filter (where s.aside and not s.locked), ''), min(s.retry_at) filter (where s.aside and not s.locked),
		       coalesce(bool_or(s.left_behind or s.aside and s.locked), false), coalesce(bool_or(s.aside and s.locked), false),
		       coalesce((select r.ended_by is not null from lapse.run r where r.run = $1), false)
		  from (select done, aside and not done as aside, sqlstate = $2 as locked, sqlstate, retry_at, left_behind
		          from lapse.shard
		         where run = $1) s`, run, schemas.SQLStateLockNotAvailable).Scan(&r.unfinished, &r.aside, &r.state, &r.retryAt, &r.lockedRows, &r.lockedLeaf, &r.limited)
	if err != nil {
		return r, fmt.Errorf("read what is left of run %v: %w", run, err)
	}
	return r, nil
}
