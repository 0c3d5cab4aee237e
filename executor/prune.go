package executor

import (
	"context"
	"time"
)

const (
	// pruneInterval is how often somebody looks whether the ledger has rows to remove.
	pruneInterval = 5 * time.Minute
	// pruneTime is how long one worker removes rows before it goes on with its work, and pruneAgain how soon somebody goes on with
	// the rest: at 5,000 rows a call that is far more than the batches of the gentlest pace write.
	pruneTime  = time.Second
	pruneAgain = 2 * time.Second
)

// prune removes what the catalog need not keep: see lapse.prune. It comes between two turns, and what fails of it fails nothing else: the
// catalog is larger than it need be, and it is tried again. Several workers, or executors, do not wait for one another.
//
//	crash in it    what was removed by then is gone, and the rest goes next time
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
