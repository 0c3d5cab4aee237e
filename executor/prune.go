package executor

import (
	"context"
	"time"
)

const (
	// pruneInterval is how often a worker checks whether the ledger has rows to remove.
	pruneInterval = 5 * time.Minute
	// pruneTime is how long one worker removes rows before it returns to its work, and pruneAgain is how soon a worker continues with the
	// rest. At 5,000 rows a call that removes far more than the batches of the gentlest pace write.
	pruneTime  = time.Second
	pruneAgain = 2 * time.Second
)

// prune removes what the catalog need not keep: see lapse.prune. It runs between two turns. If it fails, the catalog stays larger than it
// need be, and a worker tries again later. Several workers, or executors, do not wait for each other.
//
//	crash in it    the rows removed so far are gone, and the rest follows next time
func (w *worker) prune(ctx context.Context) {
	begun := w.now()
	w.mu.Lock()
	due := !begun.Before(w.pruneAt)
	if due {
		w.pruneAt = begun.Add(pruneInterval)
	}
	w.mu.Unlock()
	if !due || w.session.Lost() {
		return
	}
	work, cancel := outlive(ctx, stopTime)
	defer cancel()
	all := 0
	for rows := 1; rows > 0; all += rows {
		if ctx.Err() != nil || w.now().Sub(begun) >= pruneTime {
			w.mu.Lock()
			w.pruneAt = w.now().Add(pruneAgain)
			w.mu.Unlock()
			break
		}
		if err := w.session.Control.QueryRow(work, `select lapse.prune($1)`, w.config.LedgerDays).Scan(&rows); err != nil {
			w.log.Warn("old rows of the ledger could not be removed; trying again later", "error", stripped("prune", err))
			return
		}
	}
	if all > 0 {
		w.log.Debug("old rows of the ledger, and old runs, were removed", "rows", all)
	}
}
