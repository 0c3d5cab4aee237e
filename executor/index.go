package executor

import (
	"context"
	"time"
)

// noIndex is the reason of batches that read all of their leaf because nobody has made an index, or somebody dropped it under a run. They go
// on for as long as they find rows in time; a shard in which not even one row is found in time is put aside.
const noIndex = "no_index"

// indexInterval is how often it is looked for in the catalog while a policy has turns.
const indexInterval = time.Minute

// checkIndex takes down whether an index finds the policy's due rows, and says so when that changes. It is no reason to fail.
func (w *worker) checkIndex(ctx context.Context, t *turn) {
	p, m := t.policy, t.memory
	if !m.indexIsDue(w.now()) {
		return
	}
	missing, err := p.MissingIndex(ctx, w.session.control)
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
	switch before := m.lacks(text); {
	case before == text:
	case text == "":
		w.log.Info("an index finds the policy's due rows again", "policy", p.Name)
	default:
		w.log.Warn("no index finds the policy's due rows", "policy", p.Name, "reason", noIndex, "detail", text)
	}
}

// indexIsDue reports whether the index is to be looked for, and takes down that it is.
func (m *policyMemory) indexIsDue(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.indexedAt.IsZero() && now.Sub(m.indexedAt) < indexInterval {
		return false
	}
	m.indexedAt = now
	return true
}

// lacks takes down what is said of an index that is missing, "" where none is, and returns what was said before.
func (m *policyMemory) lacks(text string) (before string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before, m.noIndex = m.noIndex, text
	return before
}

// lacked is what is said of an index that is missing.
func (m *policyMemory) lacked() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.noIndex
}

// lookAgain has the index looked for at the next turn: a batch took too long.
func (m *policyMemory) lookAgain() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.indexedAt = time.Time{}
}
