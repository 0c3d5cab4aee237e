package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"lapse/schemas"
)

// lease is the right of one worker to work on one shard. It ends when lapse.lease_time has passed since its holder's last
// batch (the deletion function moves that instant along in each batch's own transaction) or when it is given back.
//
// The term is what makes a lease safe: each lease has the next one, and the deletion function refuses any but the
// last. A process that was stopped for an hour and goes on in the middle of a batch is refused, whatever it believes.
//
// Nobody waits long with a lease in hand: a policy that pauses after an error gives its shard back first, and the pause
// between two batches is bounded by longestPause. While the outcome of a commit is unknown that transaction itself has the
// shard's row locked, and nobody can take it. A worker that lost its connection with a lease in hand gives the shard back
// with its next one, or takes it again, as its own.
//
//	crash before the lease commits      the shard is free
//	crash with the lease in hand        the shard is free when the lease ends; its cursor says where to go on
//	crash while it is given back        the same, or it is free at once
type lease struct {
	shard  int64
	term   int64
	run    uuid.UUID
	leaf   uint32 // the table or partition
	cutoff time.Time
}

// acquire takes a shard of run that nobody else holds. It returns nil when there is none. Durable when it returns.
func (s *session) acquire(ctx context.Context, run uuid.UUID) (*lease, error) {
	l := lease{run: run}
	err := s.control.QueryRow(ctx, `select shard, term, leaf, cutoff from lapse.lease($1, $2)`, run, s.holder).
		Scan(&l.shard, &l.term, &l.leaf, &l.cutoff)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("take a shard of run %v: %w", run, err)
	}
	return &l, nil
}

// release gives the shard back, unless it is another's by now. It returns a position above all that was committed
// before.
func (s *session) release(ctx context.Context, l *lease) (schemas.LSN, error) {
	batch := &pgx.Batch{}
	batch.Queue(insertPosition)
	batch.Queue(`select lapse.release($1, $2, $3)`, l.shard, l.term, s.holder)
	var above schemas.LSN
	answers := s.control.SendBatch(ctx, batch)
	err := answers.QueryRow().Scan(&above)
	if closed := answers.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return above, fmt.Errorf("release shard %d: %w", l.shard, err)
	}
	return above, nil
}

// runState is what is left of a run.
type runState struct {
	unfinished bool // shards that somebody has, or will have
	aside      int  // shards in which a row resisted
	state      string
	retryAt    *time.Time // when the first of them is tried again
	behind     bool       // due rows that somebody had locked
	limited    bool       // it has reached a limit of the policy's: lapse.end_run
}

// runState looks what is left of a run.
func (s *session) runState(ctx context.Context, run uuid.UUID) (r runState, err error) {
	err = s.control.QueryRow(ctx, `
		select coalesce(bool_or(not s.done and not s.aside), false), count(*) filter (where s.aside and not s.locked),
		       coalesce(min(s.sqlstate) filter (where s.aside and not s.locked), ''), min(s.retry_at) filter (where s.aside and not s.locked),
		       coalesce(bool_or(s.left_behind or s.aside and s.locked), false),
		       coalesce((select r.ended_by is not null from lapse.run r where r.run = $1), false)
		  from (select done, aside and not done as aside, sqlstate = $2 as locked, sqlstate, retry_at, left_behind
		          from lapse.shard
		         where run = $1) s`, run, schemas.SQLStateLockNotAvailable).Scan(&r.unfinished, &r.aside, &r.state, &r.retryAt, &r.behind, &r.limited)
	if err != nil {
		return r, fmt.Errorf("look what is left of run %v: %w", run, err)
	}
	return r, nil
}

// putAside takes a shard of which a row resists out of its run. It is tried again in a later one, not before until.
func (s *session) putAside(ctx context.Context, l *lease, state string) (until time.Time, err error) {
	err = s.control.QueryRow(ctx, `select lapse.put_aside($1, $2, $3, $4)`, l.shard, l.term, s.holder, state).Scan(&until)
	if err != nil {
		return until, fmt.Errorf("put shard %d aside: %w", l.shard, err)
	}
	return until, nil
}
