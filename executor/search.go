package executor

import (
	"lapse/planner"
)

// search finds a row that resists, on one shard. The batches of a shard are cut off in one order, so that a batch of n rows
// which fails says that the row is among the next n: they are divided until it alone is left, and it is tried by a batch that
// steps over it. After that batches begin small and double, so that finding the next one takes the logarithm of the rows
// between the two, and twice that at most. What is remembered decides about speed alone: another process begins anew.
//
//	a batch of n rows fails            the next has n/2 rows
//	one of k of them went through      the next has half of those that are left
//	one is left                        a batch of one row steps over it: the row goes, or is entered in the quarantine
//	stepped over                       1 row, stepping over it too; then 2, 4, 8 ... until batches are as large as they were
//	a batch of n rows takes too long   the next have n/16 rows each: one that fails costs seconds, and one that goes through next
//	                                   to nothing
type search struct {
	among int  // so many rows from the cursor on have one that resists; 0: nobody knows
	part  int  // rows of each batch of these, where it resists by taking too long
	slow  bool // it does
	step  int  // where nobody knows: the rows of the next batch
}

// slowParts is into how many batches rows are divided of which one takes too long.
const slowParts = 16

// next is what the next batch is to do.
func (s *search) next(o order) order {
	rows := s.step
	switch {
	case s.among > 0 && s.slow:
		rows = s.part
	case s.among > 0:
		rows = max(s.among/2, 1)
	}
	o.limit = min(o.limit, rows)
	if o.stepOver = s.among == 1 || rows == 1 && (s.among == 0 || s.slow); o.stepOver {
		o.shape, o.careful = planner.PicksInstead(o.shape), false // the row is to be locked, and to fail if it must
	}
	return o
}

// failed takes down that a batch of so many rows did not get through because of one of them; slow: it took too long.
func (s *search) failed(rows int, slow bool) {
	s.among, s.slow, s.part = rows, slow, max(rows/slowParts, 1)
}

// through takes down that a batch was durable.
func (s *search) through(o order, picked int64, deleted bool) {
	switch left := s.among - int(picked); {
	case s.among > 0 && s.slow && left > 0 && (deleted || !o.stepOver):
		s.among = left
		if left <= s.part { // all of them would fail
			s.failed(left, true)
		}
	case o.stepOver && deleted, s.among > 0 && left <= 0:
		s.among, s.step = 0, 2 // it went, or it went by
	case o.stepOver:
		s.among, s.step = 0, 1
	case s.among > 0:
		s.among = left
	default:
		s.step = 2 * o.limit
	}
}

// order is what the next batch on a shard, which is a whole leaf or a slice of one, is to do: at most limit rows.
func (m *policyMemory) order(l *lease, p *planner.InForce, limit int) order {
	m.mu.Lock()
	defer m.mu.Unlock()
	usual := p.Definition.Shapes()[0]
	if m.heaps[l.leaf] && usual == planner.ShapeRange {
		usual = planner.ShapeHeap
	}
	o := order{limit: limit}
	o.shape, o.careful = m.shapes.next(l.shard, usual)
	s := m.searches[l.shard]
	if s == nil {
		return o
	}
	if s.among == 0 && s.step >= limit && limit > 1 {
		delete(m.searches, l.shard)
		return o
	}
	return s.next(o)
}

// searching reports whether a row that resists is looked for on a shard, and begins with it after a failure of so many rows; 0 for none.
// slow: they took too long.
func (m *policyMemory) searching(shard int64, failed int, slow bool) (before bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.searches[shard]
	if before = s != nil; !before && failed > 0 {
		s = &search{}
		m.searches[shard] = s
	}
	if failed > 0 {
		s.failed(failed, slow)
	}
	return before
}

// stepped takes down what a batch did on a shard where a row is looked for, and reports whether there is one: the batch's size and time
// say nothing of those of others then, but where rows are looked for that take too long, which may be all of them.
func (m *policyMemory) stepped(shard int64, o order, done *result) (searched bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.searches[shard]
	if s == nil {
		return false
	}
	searched = !s.slow || s.among == 0 || o.stepOver
	s.through(o, done.picked, done.deleted > 0)
	if done.finished {
		delete(m.searches, shard)
	}
	return searched
}
