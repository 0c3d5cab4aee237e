package executor

import (
	"context"
	"time"

	"lapse/planner/run"
)

// noIndex is the reason of batches that read all of their leaf because nobody has made an index, or somebody dropped it under a run. They go
// on for as long as they find rows in time; a shard in which not even one row is found in time is put aside.
const noIndex = "no_index"

// indexInterval is how often it is looked for in the catalog while a policy has turns.
const indexInterval = time.Minute

// checkIndex records whether an index finds the policy's due rows, and says so when that changes. It is no reason to fail.
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
	missing string    // what is said of an index that is missing, "" where none is
	askedAt time.Time // when the catalog was asked
}

// isDue reports whether the catalog is to be asked, and records that it is.
func (i *indexMemory) isDue(now time.Time) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.is.askedAt.IsZero() && now.Sub(i.is.askedAt) < indexInterval {
		return false
	}
	i.is.askedAt = now
	return true
}
