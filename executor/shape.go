package executor

import (
	"lapse/planner"
	"lapse/schemas"
)

// A policy's rows are usually found by ranges of an index's order. What is known of a leaf before its run is opened, and what a
// batch meets on its shard, says whether the next ones go by something else:
//
//	much of a leaf is due, and its index is in    its batches go through the table's file: heap (planner.HeapOf)
//	another order than its rows, or there is none
//	range   a row of it is locked, or too many    the next batches are picks, which pass over what is locked: one after
//	heap    rows were loaded into it              the first time, twice as many after each further one in a row
//	pick    a lock that it cannot pass over: on   tried again after a pause, with half the rows, until one row alone is left and
//	        a row of a child, the leaf, the gate  its shard is put aside
//
// When a batch fails, nothing of it has happened. What is remembered decides about speed alone: another process begins anew.

// mostPicks is how many batches are picks at most before a range is tried again: a range that fails has waited for a lock in
// vain, which is to be a small part of the time.
const mostPicks = 64

// shapes is what is remembered, by shard.
type shapes map[int64]*detour

// isPick reports whether batches of a shape lock their rows one by one.
func isPick(shape string) bool { return shape == planner.PicksInstead(shape) }

// detour is how a shard's batches keep off locked rows.
type detour struct {
	left int // batches that are picks from here on
	long int // how many the last range that was blocked led to
}

// next is the shape of a shard's next batch where usual is the usual one.
func (s shapes) next(shard int64, usual string) string {
	if d := s[shard]; d != nil && d.left > 0 {
		return planner.PicksInstead(usual)
	}
	return usual
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
	case isPick(shape):
		d.left--
	default:
		delete(s, shard)
	}
}

// goesByHeap takes down which leaves are worked off in the order of their files.
func (m *policyMemory) goesByHeap(leaves []uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.heaps = map[uint32]bool{}
	for _, leaf := range leaves {
		m.heaps[leaf] = true
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
	if !isPick(shape) {
		m.shapes.blocked(shard)
		return true
	}
	m.size.halve(limit)
	return false
}
