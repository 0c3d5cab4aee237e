package executor

import (
	"context"
	"errors"

	"lapse/executor/batch"
	"lapse/schemas"
)

// A policy with drop_partition tries to drop a whole leaf, once for each lease, before it deletes rows of it. The database decides what
// may be dropped, in the transaction that drops: see planner/functions/drop.sql.tmpl and schemas/migrations/0001_18_drop.sql.
//
// The count takes longer than a batch, but blocks no other session: a session that waits to write into the leaf goes first. Locks that
// block readers are held only from the end of the count to COMMIT, which is two round trips.

// dropLeaf tries to drop the shard's leaf. The turn goes on if the leaf's rows must be deleted instead.
func (w *worker) dropLeaf(ctx context.Context, t *turn, a *batch.Assignment) (turnEnd, error) {
	p, m := t.policy, t.memory
	f, err := m.programs.drops()
	if err != nil {
		return turnGoesOn, err
	}
	began := w.now()
	ticket := w.guards.memory.Unconfirmed.Draw()
	begun, done, why, err := w.session.Drop(ctx, a, f, w.config.TagKey)
	if begun.Insert > 0 {
		w.guards.memory.Unconfirmed.Below(ticket, begun.Insert)
	}
	var unknown *batch.UnknownCommit
	switch {
	case errors.As(err, &unknown):
		return turnMore, w.unanswered(ctx, t, &done, unknown)
	case schemas.StateOf(err) == schemas.SQLStateQueryCanceled && !w.session.Lost():
		w.log.Info("a partition is not dropped, because it takes too long: its rows are deleted", "policy", p.Name, "relation", a.Leaf)
		return turnGoesOn, nil
	case err != nil:
		decision := w.grade(err, circumstances{limit: 1, locks: m.locks.tried(a.Shard, err), whole: true})
		w.metrics.failed(p, decision.String())
		if decision == PutAside { // another session keeps it locked
			return w.putAside(ctx, t, a, err)
		}
		return turnGoesOn, err
	case why != "":
		w.log.Debug("a partition is not dropped: its rows are deleted", "policy", p.Name, "relation", a.Leaf, "why", why)
		return turnGoesOn, nil
	}
	done.Took = w.now().Sub(began)
	m.pauses.wentWell()
	m.locks.got(a.Shard)
	w.count(t, &done)
	w.log.Info("a partition is dropped", "policy", p.Name, "relation", a.Leaf, "rows", done.Deleted, "seconds", done.Took.Seconds())
	t.shardDone()
	if t.spend(0, w.now()) {
		return turnMore, nil
	}
	return turnShardOver, nil
}
