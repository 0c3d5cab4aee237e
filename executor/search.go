package executor

import (
	"lapse/executor/batch"
	"lapse/planner/functions"
)

// search finds a row that resists, on one shard. Batches take a shard's rows in a fixed order. So if a batch of n rows fails, the row is
// among the next n. The search halves them until the row is alone, and then tries it in a batch that steps over it. After that batches
// begin with one row and double, so finding the next such row takes at most twice the logarithm of the rows between the two. The memory
// only affects speed: another process starts over.
//
//	a batch of n rows fails            the next has n/2 rows
//	one of k of them went through      the next has half of those that are left
//	one is left                        a batch of one row steps over it: the row is deleted, or entered in the quarantine
//	stepped over                       1 row, stepping over it too; then 2, 4, 8 ... until batches are as large as they were
//	a batch of n rows takes too long   the next have n/16 rows each: one that fails costs seconds, one that succeeds costs next
//	                                   to nothing
type search struct {
	among int  // one of the next so many rows resists; 0: not known
	part  int  // if it resists by taking too long: rows of each batch of these
	slow  bool // it takes too long
	step  int  // if among is 0: rows of the next batch
}

// slowParts is the number of batches that a batch which took too long is split into.
const slowParts = 16

// next returns the order of the next batch.
func (s *search) next(o batch.Order) batch.Order {
	rows := s.step
	switch {
	case s.among > 0 && s.slow:
		rows = s.part
	case s.among > 0:
		rows = max(s.among/2, 1)
	}
	o.Limit = min(o.Limit, rows)
	if o.StepOver = s.among == 1 || rows == 1 && (s.among == 0 || s.slow); o.StepOver {
		o.Shape, o.Careful = functions.PicksInstead(o.Shape), false // this batch must lock the row, and fail if the row resists
	}
	return o
}

// failed records that a batch of so many rows failed because of one of them. slow: it took too long.
func (s *search) failed(rows int, slow bool) {
	s.among, s.slow, s.part = rows, slow, max(rows/slowParts, 1)
}

// through records a durable batch.
func (s *search) through(o batch.Order, picked int64, deleted bool) {
	switch left := s.among - int(picked); {
	case s.among > 0 && s.slow && left > 0 && (deleted || !o.StepOver):
		s.among = left
		if left <= s.part { // each further batch would fail
			s.failed(left, true)
		}
	case o.StepOver && deleted, s.among > 0 && left <= 0:
		s.among, s.step = 0, 2 // the row was deleted or stepped over
	case o.StepOver:
		s.among, s.step = 0, 1
	case s.among > 0:
		s.among = left
	default:
		s.step = 2 * o.Limit
	}
}
