package executor

import (
	"sync"
	"time"

	"lapse/planner/record"
	"lapse/planner/run"
)

// lookedInterval is how often "nothing is due" is written to the catalog at most. `lapse status` may be out of date by as much.
const lookedInterval = time.Minute

// quiet remembers the looks that found nothing due. Safe for concurrent use.
type quiet struct {
	mu       sync.Mutex
	lookedAt time.Time            // when a look last found nothing due
	notedAt  time.Time            // when that was written to the catalog
	leaves   map[uint32]run.Quiet // the leaves that looks may skip
	shares   time.Time            // see share; zero: it does not
	apart    time.Time            // until then it does not either
}

// sharedInterval is how often a policy must look for its looks to be shared: what it reads is in memory, so that they are short.
const sharedInterval = 90 * time.Second

// share records whether the policy's next look may be one of many in a round trip: the last one was short and found nothing due. If that is no
// longer so, the look that is shared shows it, and the policy gets a turn of its own.
func (q *quiet) share(may bool, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.shares = time.Time{}
	if may {
		q.shares = now
	}
}

// stayApart keeps the policy's looks from being shared for a while.
func (q *quiet) stayApart(now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.apart = now.Add(sharedInterval)
}

// mayShare reports what share recorded, for as long as it holds.
func (q *quiet) mayShare(now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return !q.shares.IsZero() && now.Sub(q.shares) <= sharedInterval && !now.Before(q.apart)
}

// foundNothing is policyMemory.foundNothing for this part.
func (q *quiet) foundNothing(noted, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lookedAt = now
	if noted.After(q.notedAt) {
		q.notedAt = noted
	}
	return now.Sub(q.notedAt) >= lookedInterval
}

// noted records that "nothing is due" was written to the catalog.
func (q *quiet) noted(now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.notedAt = now
}

// add records leaves in which, as a look found, nothing will be due until something is written to them.
func (q *quiet) add(leaves []run.Quiet) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range leaves {
		q.leaves[l.Leaf] = l
	}
}

// forget makes the next look skip no leaf.
func (q *quiet) forget() {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.leaves)
}

// marks returns the leaves that a look may skip. Old entries are dropped, so those leaves are checked again.
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

// looked returns when a look last found nothing due under the policy, as far as this process knows.
func (q *quiet) looked(p *record.InForce) time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lookedAt.After(p.LookedAt) {
		return q.lookedAt
	}
	return p.LookedAt
}

// since returns the policy with what this process knows of its looks.
func (q *quiet) since(p *record.InForce) *record.InForce {
	with := *p
	with.LookedAt = q.looked(p)
	return &with
}
