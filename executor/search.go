package executor

import (
	"lapse/executor/batch"
	"lapse/planner/functions"
)

// search finds a row that resists, on one shard. The batches of a shard are cut off in one order, so that a batch of n rows
// which fails says that the row is among the next n: they are divided until it alone is left, and it is tried by a batch that
// steps over it. After that batches begin small and double, so that finding the next one takes the logarithm of the rows
// between the two, and twice that at most. What is remembered decides about speed alone: another process begins again.
//
//	a batch of n rows fails            the next has n/2 rows
//	one of k of them went through      the next has half of those that are left
//	one is left                        a batch of one row steps over it: the row is deleted, or is entered in the quarantine
//	stepped over                       1 row, stepping over it too; then 2, 4, 8 ... until batches are as large as they were
//	a batch of n rows takes too long   the next have n/16 rows each: one that fails costs seconds, and one that goes through next
//	                                   to nothing
type search struct {
	among int  // so many rows from the cursor on have one that resists; 0: nobody knows
	part  int  // rows of each batch of these, where it resists by taking too long
	slow  bool // it does
	step  int  // where nobody knows: the rows of the next batch
}

// slowParts is the number of batches that a batch which took too long is split into.
const slowParts = 16

// next is what the next batch is to do.
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
		o.Shape, o.Careful = functions.PicksInstead(o.Shape), false // the row is to be locked, and to fail if it must
	}
	return o
}

// failed records that a batch of so many rows did not get through because of one of them; slow: it took too long.
func (s *search) failed(rows int, slow bool) {
	s.among, s.slow, s.part = rows, slow, max(rows/slowParts, 1)
}

// through records that a batch was durable.
func (s *search) through(o batch.Order, picked int64, deleted bool) {
	switch left := s.among - int(picked); {
	case s.among > 0 && s.slow && left > 0 && (deleted || !o.StepOver):
		s.among = left
		if left <= s.part { // all of them would fail
			s.failed(left, true)
		}
	case o.StepOver && deleted, s.among > 0 && left <= 0:
		s.among, s.step = 0, 2 // it went, or it went by
	case o.StepOver:
		s.among, s.step = 0, 1
	case s.among > 0:
		s.among = left
	default:
		s.step = 2 * o.Limit
	}
}
