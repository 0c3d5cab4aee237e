package batch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"lapse/schemas"
)

// Lease is the right of one worker to work on one shard. It ends when it is given back, or when lapse.lease_time has passed since its
// holder's last batch: the deletion function extends it in each batch's own transaction.
//
// The term makes a lease safe: each lease of a shard has the next number, and the deletion function refuses all but the latest. So a
// process that was stopped for an hour and then continues in the middle of a batch is refused.
//
// A worker never waits long while it holds a lease: a policy that pauses after an error gives its shard back first, and the executor's
// longestPause bounds the pause between two batches. While the outcome of a commit is unknown, that transaction itself locks the
// shard's row, so no other worker can take it. A worker that lost its connection while it held a lease gives the shard back over its
// next connection, or takes it again as its own.
//
//	crash before the lease commits      the shard is free
//	crash while it is held              the shard is free when the lease ends; its cursor says where to continue
//	crash while it is given back        the same, or it is free at once
type Lease struct {
	Shard  int64
	Term   int64
	Run    uuid.UUID
	Leaf   uint32 // the table or partition
	InHeap bool   // its batches go by the leaf's file
	cutoff time.Time
}

// Acquire takes a shard of run that no other worker holds. It returns nil if there is none. Durable when it returns.
func (s *Session) Acquire(ctx context.Context, run uuid.UUID) (*Lease, error) {
	l := Lease{Run: run}
	err := s.Control.QueryRow(ctx, `select shard, term, leaf, cutoff, in_heap from lapse.lease($1, $2)`, run, s.holder).
		Scan(&l.Shard, &l.Term, &l.Leaf, &l.cutoff, &l.InHeap)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("take a shard of run %v: %w", run, err)
	}
	return &l, nil
}

// Release gives the shard back, unless another worker has taken it. It returns a position above everything committed before.
func (s *Session) Release(ctx context.Context, l *Lease) (schemas.LSN, error) {
	batch := &pgx.Batch{}
	batch.Queue(insertPosition)
	batch.Queue(`select lapse.release($1, $2, $3)`, l.Shard, l.Term, s.holder)
	var above schemas.LSN
	answers := s.Control.SendBatch(ctx, batch)
	err := answers.QueryRow().Scan(&above)
	if closed := answers.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return above, fmt.Errorf("release shard %d: %w", l.Shard, err)
	}
	return above, nil
}

// PutAside takes a shard out of its run because one of its rows cannot be deleted. A later run tries it again, not before until.
func (s *Session) PutAside(ctx context.Context, l *Lease, state string) (until time.Time, err error) {
	err = s.Control.QueryRow(ctx, `select lapse.put_aside($1, $2, $3, $4)`, l.Shard, l.Term, s.holder, state).Scan(&until)
	if err != nil {
		return until, fmt.Errorf("put shard %d aside: %w", l.Shard, err)
	}
	return until, nil
}
