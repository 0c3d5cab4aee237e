package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/planner/functions"
	"lapse/schemas"
)

// A policy with drop_partition tries to drop a leaf whole, once for each lease, before it deletes rows of it. What may be dropped is
// decided in the database, in the transaction that drops: see planner/functions/drop.sql.tmpl and schemas/migrations/0001_18_drop.sql.
//
// The counting takes longer than a batch. It holds up nobody: whoever waits to write into the leaf is given way to, and the locks
// that readers feel are held from the end of the counting to COMMIT, which is two round trips.

// dropTimeout is the statement_timeout of a drop. The function bounds by itself, below it, how long it counts, and how long it waits
// for a lock.
const dropTimeout = 15 * time.Second

// dropLeaf tries to drop the shard's leaf. The turn goes on where its rows are to be deleted.
func (w *worker) dropLeaf(ctx context.Context, t *turn, a *assignment) (turnEnd, error) {
	p, m := t.policy, t.memory
	f, err := m.programs.drops()
	if err != nil {
		return turnGoesOn, err
	}
	began := w.now()
	ticket := w.guards.memory.Unconfirmed.Draw()
	dropping := *a
	dropping.functions, dropping.limits.statement = f, dropTimeout
	begun, done, why, err := w.session.dropPartition(ctx, &dropping, w.config.TagKey)
	if begun.insert > 0 {
		w.guards.memory.Unconfirmed.Below(ticket, begun.insert)
	}
	var unknown *unknownCommit
	switch {
	case errors.As(err, &unknown):
		return turnMore, w.unanswered(ctx, t, &done, unknown)
	case schemas.StateOf(err) == schemas.SQLStateQueryCanceled && !w.session.lost():
		w.log.Info("a partition is not dropped, because it takes too long: its rows are deleted", "policy", p.Name, "relation", a.leaf)
		return turnGoesOn, nil
	case err != nil && m.locks.tried(a.shard, err) < lockTries:
		w.metrics.failed(p, grade(err, circumstances{limit: 1, lost: w.session.lost(), own: true}).String())
		return turnGoesOn, err
	case err != nil: // somebody has it locked all the time
		w.metrics.failed(p, PutAside.String())
		return w.putAside(ctx, t, a, err)
	case why != "":
		w.log.Debug("a partition is not dropped: its rows are deleted", "policy", p.Name, "relation", a.leaf, "why", why)
		return turnGoesOn, nil
	}
	done.took = w.now().Sub(began)
	m.pauses.wentWell()
	m.locks.got(a.shard)
	w.count(t, &done)
	w.log.Info("a partition is dropped", "policy", p.Name, "relation", a.leaf, "rows", done.deleted, "seconds", done.took.Seconds())
	t.shardDone()
	if t.spend(0, w.now()) {
		return turnMore, nil
	}
	return turnShardOver, nil
}

// dropPartition drops an assignment's leaf in one transaction, or says why not. What is durable when it returns, what its errors
// mean, and what a crash leaves, is as with deleteBatch.
func (s *session) dropPartition(ctx context.Context, a *assignment, key schemas.Key) (start, result, string, error) {
	begun, err := s.beginOrGoOn(ctx, a)
	if err != nil {
		s.rollback(ctx)
		return begun, result{}, "", fmt.Errorf("begin to drop a partition: %w", err)
	}
	done, why, err := s.callDrop(ctx, a, key, begun)
	if err != nil {
		s.rollback(ctx)
		return begun, result{}, "", err
	}
	return begun, done, why, s.commit(ctx)
}

// callDrop signs the claim, runs the function, looks whether the functions are still the same, and checks what they say.
func (s *session) callDrop(ctx context.Context, a *assignment, key schemas.Key, begun start) (done result, why string, err error) {
	if err := a.functions.compare(ctx, s.batches, begun.versions); err != nil {
		return result{}, "", err
	}
	claim, err := s.claim(a, begun)
	if err != nil {
		return result{}, "", err
	}
	batch := &pgx.Batch{}
	batch.Queue(`select dropped, rows, coalesce(why, '') from `+functions.DropFunction(a.policy, a.version)+deleteCall,
		deleteArguments(&claim, claim.DropMAC(key), a.lease, s.holder, order{limit: 1})...)
	batch.Queue("set local search_path = pg_catalog, pg_temp")
	batch.Queue(`select (`+functionVersions+`), `+heldCursors, a.functions.names)
	answers := s.batches.SendBatch(ctx, batch)
	var dropped, held bool
	versions := ""
	for _, ask := range []func() error{
		func() error { return answers.QueryRow().Scan(&dropped, &done.deleted, &why) },
		func() error { _, err := answers.Exec(); return err },
		func() error { return answers.QueryRow().Scan(&versions, &held) },
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
		return result{}, "", fmt.Errorf("drop a partition: %w", err)
	case versions != begun.versions:
		return result{}, "", errFunctionsChanged
	case held:
		return result{}, "", errCursorLeft
	case dropped != (why == "") || dropped != (done.deleted > 0):
		return result{}, "", &countsError{fmt.Sprintf("a partition of %d rows was dropped: %t", done.deleted, dropped)}
	}
	done.batch, done.xid, done.picked, done.finished = claim.Batch, begun.xid, done.deleted, dropped
	return done, why, nil
}
