package executor

import (
	"context"
	"fmt"
	"time"

	"lapse/internal/backoff"
	"lapse/schemas"
)

// unanswered finds out what became of a commit that was not answered. Either way the policy goes on in its next turn, on
// the connection that found out. The error where nobody can tell is no fault of the policy's.
func (w *worker) unanswered(ctx context.Context, t *turn, done *result, unknown *unknownCommit) error {
	p := t.policy
	w.log.Warn("a commit was not answered; asking what became of it", "policy", p.Name, "batch", done.batch,
		"error", stripped("commit", unknown.cause))
	w.guards.memory.Unconfirmed.Ended(w.now())
	committed, err := w.awaitOutcome(ctx, done)
	if err != nil {
		w.log.Error("what became of a batch is not known; its ledger row would say", "policy", p.Name, "batch", done.batch,
			"error", stripped("ask", err))
		return &unknownCommit{err}
	}
	w.log.Info("what became of the commit is known", "policy", p.Name, "batch", done.batch, "committed", committed)
	if committed {
		w.count(t, done)
	} else {
		w.metrics.failed(p, outcomeLost)
	}
	return nil
}

// awaitOutcome finds out what became of a transaction whose COMMIT was not answered. Only the counters depend on it: rows,
// ledger and cursor went together or stayed together.
//
//	pg_xact_status says        it is
//	in progress                waited for, however long: the former backend may still be at work, and commit
//	committed, aborted, null   over: the ledger says whether it happened
//	an xid of the future       over: a crash of the server took it, and nothing of it was on disk
//
// After a crash of the server the xid may be another transaction's by now, which committed. So "committed" alone proves
// nothing; the ledger row with this batch's id does.
func (w *worker) awaitOutcome(ctx context.Context, done *result) (committed bool, err error) {
	pause := backoff.Backoff{Min: 10 * time.Millisecond, Max: time.Second}
	for {
		if err := w.connect(ctx, forever); err != nil {
			return false, err
		}
		over, err := w.session.isOver(ctx, done.xid)
		if err == nil && over {
			committed, err = w.session.inLedger(ctx, done)
		}
		switch {
		case err == nil && over:
			return committed, nil
		case err != nil && grade(err, circumstances{lost: w.session.lost()}) != Retry:
			return false, err
		}
		if err := wait(ctx, pause.Next()); err != nil {
			return false, err
		}
	}
}

// isOver says whether a transaction has ended. A standby does not know.
func (s *session) isOver(ctx context.Context, xid schemas.XID) (bool, error) {
	var standby bool
	var status *string
	err := s.control.QueryRow(ctx, `select pg_is_in_recovery(), pg_xact_status($1)`, xid).Scan(&standby, &status)
	if schemas.StateOf(err) == schemas.SQLStateInvalidParameterValue {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask what became of a transaction: %w", err)
	}
	return !standby && (status == nil || *status != "in progress"), nil
}

// inLedger says whether the batch committed. The statement's snapshot is younger than the end of its transaction. A
// batch that picked nothing has no row, and nothing to count.
func (s *session) inLedger(ctx context.Context, done *result) (there bool, err error) {
	err = s.control.QueryRow(ctx, `select exists (select from lapse.batch where batch = $1) or exists (select from lapse.dropped where batch = $1)`, done.batch).Scan(&there)
	if err != nil {
		return false, fmt.Errorf("look for a batch in the ledger: %w", err)
	}
	return there, nil
}
