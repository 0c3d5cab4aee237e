package executor

import (
	"context"
	"time"

	"lapse/planner/run"
)

// noIndex is the reason of batches that read their whole leaf because no index fits: none was made, or it was dropped during a run. Such
// batches go on while they find rows in time; a shard in which not even one row is found in time is put aside.
const noIndex = "no_index"

// indexInterval is how often the catalog is searched for an index while a policy has turns.
const indexInterval = time.Minute

// checkIndex records whether an index finds the policy's due rows, and logs a change. Its own errors are only logged.
func (w *worker) checkIndex(ctx context.Context, t *turn) {
	p, m := t.policy, t.memory
	if !m.index.isDue(w.now()) {
		return
	}
	missing, err := run.MissingIndex(ctx, w.session.Control, p)
	if err != nil {
		w.log.Debug("whether there is an index is not known", "policy", p.Name, "error", stripped("look for an index", err))
		return
	}
	text := ""
	if missing != nil {
		text = missing.Problem
		for _, step := range missing.Steps {
			text += ": " + step.SQL
		}
	}
	before := m.index.now().missing
	m.index.change(func(i *indexFacts) { i.missing = text })
	switch {
	case before == text:
	case text == "":
		w.log.Info("an index finds the policy's due rows again", "policy", p.Name)
	default:
		w.log.Warn("no index finds the policy's due rows", "policy", p.Name, "reason", noIndex, "detail", text)
	}
}

// indexMemory remembers whether an index finds a policy's due rows. Safe for concurrent use.
type indexMemory struct{ shared[indexFacts] }

type indexFacts struct {
	missing string    // what to say about the missing index; "" if there is an index
	askedAt time.Time // when the catalog was searched
}

// isDue reports whether it is time to search the catalog, and records that the caller does.
func (i *indexMemory) isDue(now time.Time) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.is.askedAt.IsZero() && now.Sub(i.is.askedAt) < indexInterval {
		return false
	}
	i.is.askedAt = now
	return true
}
