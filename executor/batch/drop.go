package batch

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/planner/functions"
	"lapse/schemas"
)

// dropTimeout is the statement_timeout of a drop. The function itself counts, and waits for locks, for less than that.
const dropTimeout = 15 * time.Second

// dropIdleTime is how long the transaction of a drop may stay idle: from the drop to COMMIT nobody can read the table.
const dropIdleTime = time.Second

// dropBounds sets what bounds the transaction of a drop. From 17 on transaction_timeout also ends single statements, and the session with
// them; a batch's is too short for a drop. A running timer keeps its time, so it is stopped first.
const dropBounds = `select set_config('idle_in_transaction_session_timeout', $1, true),
	(select set_config('transaction_timeout', '0', true) || set_config('transaction_timeout', $2, true)
	  where current_setting('transaction_timeout', true) is not null)`

// Drop drops an assignment's leaf in one transaction, or returns why it did not. What is durable when it returns, what its errors
// mean, and what a crash leaves, is as with Delete.
func (s *Session) Drop(ctx context.Context, of *Assignment, f *Program, key schemas.Key) (Start, Result, string, error) {
	dropping := *of
	a := &dropping
	a.functions, a.Limits.Statement = f, dropTimeout
	begun, err := s.beginOrGoOn(ctx, a)
	if err != nil {
		s.rollback(ctx)
		return begun, Result{}, "", fmt.Errorf("begin to drop a partition: %w", err)
	}
	done, why, err := s.callDrop(ctx, a, key, begun)
	if err != nil {
		s.rollback(ctx)
		return begun, Result{}, "", err
	}
	return begun, done, why, s.commit(ctx)
}

// callDrop signs the claim, runs the function, and checks that the functions are unchanged and that the reported counts add up.
func (s *Session) callDrop(ctx context.Context, a *Assignment, key schemas.Key, begun Start) (done Result, why string, err error) {
	if begun.functions, err = a.functions.compare(ctx, s.Batches, begun.functions); err != nil {
		return Result{}, "", err
	}
	claim, err := s.claim(a, key, begun)
	if err != nil {
		return Result{}, "", err
	}
	batch := &pgx.Batch{}
	batch.Queue(dropBounds, milliseconds(dropIdleTime), milliseconds(mostTransactionTime))
	batch.Queue(`select dropped, rows, coalesce(why, '') from `+functions.DropFunction(a.Policy, a.version)+deleteCall,
		deleteArguments(&claim, claim.DropMAC(key), a.Lease, s.holder, Order{Limit: 1})...)
	batch.Queue("set local search_path = pg_catalog, pg_temp")
	batch.Queue(beforeCommit, begun.functions.at, a.functions.regprocs)
	answers := s.Batches.SendBatch(ctx, batch)
	var dropped bool
	for _, ask := range []func() error{
		func() error { _, err := answers.Exec(); return err },
		func() error { return answers.QueryRow().Scan(&dropped, &done.Deleted, &why) },
		func() error { _, err := answers.Exec(); return err },
		func() error { return begun.functions.confirm(answers.QueryRow()) },
	} {
		if err == nil {
			err = ask()
		}
	}
	if closed := answers.Close(); err == nil {
		err = closed
	}
	switch {
	case err != nil:
		return Result{}, "", fmt.Errorf("drop a partition: %w", err)
	case dropped != (why == "") || dropped != (done.Deleted > 0):
		return Result{}, "", &CountsError{fmt.Sprintf("a partition of %d rows was dropped: %t", done.Deleted, dropped)}
	}
	done.Batch, done.XID, done.Picked, done.Finished = claim.Batch, begun.xid, done.Deleted, dropped
	return done, why, nil
}
