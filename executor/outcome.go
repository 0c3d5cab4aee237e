package executor

import (
	"context"
	"time"

	"lapse/executor/batch"
	"lapse/internal/backoff"
)

// unanswered finds out the outcome of a commit that got no answer. Either way the policy continues in its next turn, over the connection
// that found out. If the outcome cannot be found out, the returned error is no fault of the policy's.
func (w *worker) unanswered(ctx context.Context, t *turn, done *batch.Result, unknown *batch.UnknownCommit) error {
	p := t.policy
	w.log.Warn("a commit was not answered; checking whether it committed", "policy", p.Name, "batch", done.Batch,
		"error", stripped("commit", unknown.Cause))
	w.guards.memory.Unconfirmed.Ended(w.now())
	committed, err := w.awaitOutcome(ctx, done)
	if err != nil {
		w.log.Error("it is not known whether a batch committed; its ledger row would show it", "policy", p.Name, "batch", done.Batch,
			"error", stripped("ask", err))
		return &batch.UnknownCommit{Cause: err}
	}
	w.log.Info("it is known whether the batch committed", "policy", p.Name, "batch", done.Batch, "committed", committed)
	if committed {
		w.count(t, done)
	} else {
		w.metrics.failed(p, outcomeLost)
	}
	return nil
}

// awaitOutcome finds out whether a transaction committed whose COMMIT got no answer. Only the counters depend on it: rows, ledger and
// cursor were committed together or not at all.
//
//	pg_xact_status says        awaitOutcome
//	in progress                waits, however long: the former backend may still be at work, and commit
//	committed, aborted, null   reads the ledger, which shows whether it happened
//	an xid of the future       the same: a crash of the server lost the transaction before it was on disk
//
// After a crash the server may give the same xid to another transaction, which then commits. So "committed" alone proves nothing; the
// ledger row with this batch's id does.
func (w *worker) awaitOutcome(ctx context.Context, done *batch.Result) (committed bool, err error) {
	pause := backoff.Backoff{Min: 10 * time.Millisecond, Max: time.Second}
	for {
		if err := w.connect(ctx, forever); err != nil {
			return false, err
		}
		over, err := w.session.IsOver(ctx, done.XID)
		if err == nil && over {
			committed, err = w.session.InLedger(ctx, done)
		}
		switch {
		case err == nil && over:
			return committed, nil
		case err != nil && !(circumstances{lost: w.session.Lost()}).pass(err):
			return false, err
		}
		if err := wait(ctx, pause.Next()); err != nil {
			return false, err
		}
	}
}
