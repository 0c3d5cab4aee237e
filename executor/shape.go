package executor

import (
	"lapse/planner/functions"
)

// A policy's rows are usually found by ranges of an index's order. What is known of a leaf before its run is opened, and what a
// batch meets on its shard, says whether the next ones go by something else:
//
//	much of a leaf is due, and its index is in    its batches go through the table's file: heap (survey.ReadBacklog)
//	another order than its rows, or there is none
//	a row is locked, of it or of what a cascade deletes  the next batches are careful: they pick the rows one by one, and leave out those of
//	one is referred to by what stays              which something is locked or referred to; one after the first time, twice as
//	rows were loaded into the range               many after each further one in a row
//	a careful batch meets a lock that it cannot   the shard is tried again after a pause, and the others go on meanwhile; then the
//	pass over: on the leaf, on rows that the      row is looked for by halving, or the shard is put aside
//	deleter may not lock
//
// When a batch fails, nothing of it has happened. What is remembered decides about speed alone: another process begins again.

// mostPicks is how many batches are careful at most before a range is tried again: a range that fails has waited for a lock in
// vain, which is to be a small part of the time.
const mostPicks = 64

// shapes is what is remembered, by shard.
type shapes map[int64]*detour

// detour is how a shard's batches keep off rows that are locked or referred to.
type detour struct {
	left int // batches that are careful from here on
	long int // how many the last range that was blocked led to
}

// next is the shape of a shard's next batch where usual is the usual one.
func (s shapes) next(shard int64, usual string) (shape string, careful bool) {
	if d := s[shard]; d != nil && d.left > 0 {
		return functions.PicksInstead(usual), true
	}
	return usual, false
}

// blocked records that a batch which was not careful failed.
func (s shapes) blocked(shard int64) {
	d := s[shard]
	if d == nil {
		d = &detour{}
		s[shard] = d
	}
	d.long = min(max(2*d.long, 1), mostPicks)
	d.left = d.long
}

// through records that a batch was durable.
func (s shapes) through(shard int64, careful bool) {
	d := s[shard]
	switch {
	case d == nil:
	case careful:
		d.left--
	default:
		delete(s, shard)
	}
}
