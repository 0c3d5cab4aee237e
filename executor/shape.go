package executor

import (
	"lapse/planner/functions"
)

// A batch usually finds a policy's rows by a range of an index's order. What is known of a leaf before its run is opened, and what a batch
// meets on its shard, can change that for the next batches:
//
//	much of a leaf is due, and its index is in    its batches read the table's file in order: heap (survey.ReadBacklog)
//	another order than its rows, or there is none
//	a row is locked, of it or of what a cascade deletes  the next batches are careful: they pick the rows one by one, and leave out those of
//	one is referred to by what stays              which something is locked or referred to; one after the first time, twice as
//	rows were loaded into the range               many after each further one in a row
//	a careful batch meets a lock that it cannot   the shard is tried again after a pause, and the others go on meanwhile; then the
//	pass over: on the leaf, on rows that the      row is looked for by halving, or the shard is put aside
//	deleter may not lock
//
// A failed batch has deleted nothing. The memory only affects speed: another process starts over.

// mostPicks is the largest number of careful batches before a range is tried again. A range that fails has waited for a lock in vain,
// which must stay a small part of the time.
const mostPicks = 64

// shapes remembers the detours, by shard.
type shapes map[int64]*detour

// detour makes a shard's batches avoid rows that are locked or referred to.
type detour struct {
	left int // how many of the next batches are careful
	long int // how many careful batches the last blocked range caused
}

// next returns the shape of a shard's next batch; usual is the usual one.
func (s shapes) next(shard int64, usual string) (shape string, careful bool) {
	if d := s[shard]; d != nil && d.left > 0 {
		return functions.PicksInstead(usual), true
	}
	return usual, false
}

// blocked records that a batch of so many portions failed that was not careful.
func (s shapes) blocked(shard int64, portions int) {
	d := s[shard]
	if d == nil {
		d = &detour{}
		s[shard] = d
	}
	d.long = min(max(2*d.long, 1), mostPicks)
	d.left = max(d.long, (portions+singlePortion-1)/singlePortion) // as many as get over the batch
}

// through records a durable batch.
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
