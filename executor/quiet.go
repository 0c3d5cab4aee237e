package executor

import (
	"sync"
	"time"

	"lapse/planner/record"
	"lapse/planner/run"
)

// lookedInterval is how often it is written to the catalog at most that nothing is due: as often as `lapse status` may be wrong about it.
const lookedInterval = time.Minute

// quiet remembers what looks found while nothing was due. Safe for concurrent use.
type quiet struct {
	mu       sync.Mutex
	lookedAt time.Time            // when a look last found nothing due
	notedAt  time.Time            // when that was written to the catalog
	leaves   map[uint32]run.Quiet // that looks may leave out
}

// foundNothing is policyMemory.foundNothing, for what is remembered here.
func (q *quiet) foundNothing(noted, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lookedAt = now
	if noted.After(q.notedAt) {
		q.notedAt = noted
	}
	if now.Sub(q.notedAt) < lookedInterval {
		return false
	}
	q.notedAt = now
	return true
}

// add records the leaves where a look said that nothing will be due until something is written to them.
func (q *quiet) add(leaves []run.Quiet) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range leaves {
		q.leaves[l.Leaf] = l
	}
}

// marks is what a look may leave out. What is remembered for too long is forgotten, and checked once more.
func (q *quiet) marks(now time.Time) []int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	marks := make([]int64, 0, len(q.leaves))
	for leaf, l := range q.leaves {
		if !now.Before(l.Until) {
			delete(q.leaves, leaf)
			continue
		}
		marks = append(marks, l.Mark)
	}
	return marks
}

// since is the policy with what this process knows of its looks.
func (q *quiet) since(p *record.InForce) *record.InForce {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.lookedAt.After(p.LookedAt) {
		return p
	}
	with := *p
	with.LookedAt = q.lookedAt
	return &with
}
