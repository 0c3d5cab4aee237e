package executor

import (
	"lapse/planner"
	"lapse/schemas"
)

// The planner says how the rows of a policy's batches are usually found; what a batch meets on its shard says how those of the
// next ones are:
//
//	range   a row of it is locked, or too many rows    the next batches are picks, which pass over what is locked: one after
//	        were loaded into it                        the first time, twice as many after each further one in a row
//	pick    a lock that it cannot pass over: on a row  tried again after a pause, with half the rows, until one row alone is left
//	        of a child, the leaf, the gate             and its shard is put aside
//
// Either way nothing of the batch has happened. What is remembered decides about speed alone: another process begins anew.

// mostPicks is how many batches are picks at most before a range is tried again: a range that fails has waited for a lock in
// vain, which is to be a small part of the time.
const mostPicks = 64

// shapes is what is remembered, by shard.
type shapes map[int64]*detour

// detour is how a shard's batches keep off locked rows.
type detour struct {
	left int // batches that are picks from here on
	long int // how many the last range that was blocked led to
}

// next is the shape of a shard's next batch, of those that its function has.
func (s shapes) next(shard int64, all []string) string {
	if d := s[shard]; d != nil && d.left > 0 {
		return planner.ShapePick
	}
	return all[0]
}

// blocked takes down that a range did not get its locks.
func (s shapes) blocked(shard int64) {
	d := s[shard]
	if d == nil {
		d = &detour{}
		s[shard] = d
	}
	d.long = min(max(2*d.long, 1), mostPicks)
	d.left = d.long
}

// through takes down that a batch was durable.
func (s shapes) through(shard int64, shape string) {
	d := s[shard]
	switch {
	case d == nil:
	case shape == planner.ShapePick:
		d.left--
	default:
		delete(s, shard)
	}
}

// blocked takes down that a batch failed because of somebody's lock, or of rows that were loaded meanwhile, and reports whether
// another shape is to be tried at once.
func (m *policyMemory) blocked(shard int64, shape string, limit int, err error) bool {
	state := schemas.StateOf(err)
	if state != schemas.SQLStateLockNotAvailable && state != schemas.SQLStateRange {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if shape != planner.ShapePick {
		m.shapes.blocked(shard)
		return true
	}
	m.size.halve(limit)
	return false
}
