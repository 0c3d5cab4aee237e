package executor

import (
	"math/bits"
	"time"
)

// firstBatch is what a policy begins with in a process: small, because nothing is known of its table.
const firstBatch = 50

// batchSize finds the size of batch that takes about the wanted time: it at most doubles and at most halves from one batch
// to the next.
type batchSize struct {
	rows  int // 0: nothing is known
	given int // sizes that were given at gentle pace
	// resisted says that the last batch did not get through. A search by halving needs the size to stay.
	resisted bool
	cost     cost
}

// next is the next batch's size, no more than largest.
func (b *batchSize) next(largest int) int {
	if b.rows == 0 {
		b.rows = firstBatch
	}
	return min(b.rows, largest)
}

const (
	// probeEvery is how often a batch at gentle pace has another size than the others, and probeShare which part of theirs: without two
	// sizes there is no telling what of a batch's time its rows take. Where they are few the other size is the larger one.
	probeEvery = 8
	probeShare = 8
)

// nextGentle is next, for a policy at gentle pace.
func (b *batchSize) nextGentle(largest int) int {
	rows := b.next(largest)
	b.given++
	switch {
	case b.resisted || b.given%probeEvery != 0:
		return rows
	case rows >= probeShare:
		return rows / probeShare
	default:
		return min(4*rows, largest)
	}
}

// learn takes the time of a batch into account, if it was as large as it might be, by the rows that it picked or by those that
// it checked. Another says nothing: it ended because the rows did.
func (b *batchSize) learn(limit int, full bool, took, wanted time.Duration) {
	if !full || took <= 0 {
		return
	}
	b.resize(limit, float64(limit)*float64(wanted)/float64(took))
}

// learnGentle is learn, for a policy at gentle pace: wanted is the time of the rows alone. What a batch costs without any row is
// left out, because smaller batches would only mean more of it. work is the time of the deletion function's call.
func (b *batchSize) learnGentle(limit int, full bool, work, wanted time.Duration) {
	if !full || work <= 0 {
		return
	}
	b.cost.add(limit, work)
	base := min(b.rows, probeShare*limit) // a batch of another size is no base for the next
	rows := wanted.Seconds() / b.cost.perRow(base)
	if b.given > gentleStart {
		rows = min(rows, gentleGrowth*float64(base)+1)
	}
	b.resize(base, rows)
}

func (b *batchSize) resize(limit int, rows float64) {
	b.resisted = false
	b.rows = max(int(min(max(rows, float64(limit)/2), float64(limit)*2)), 1)
}

// halve is for a batch that did not get through.
func (b *batchSize) halve(limit int) { b.rows, b.resisted = max(limit/2, 1), true }

const (
	// costForgets is how much slower each batch lets the quickest ones before it seem: one counts for about a hundred batches.
	costForgets = 1.0 / 64
	// costShare is which part of the time rows are taken to be at least: 1 of so many.
	costShare = 50
	// gentleGrowth is how many times as large the next batch may be after the first gentleStart: what rows cost shows late.
	gentleGrowth = 1.25
	gentleStart  = 16
)

// cost is what batches take: of each size, from 2^n rows on, the quickest of late. What else a server does makes a batch slower, and
// never faster, often many times as slow as its rows are: a mean of a busy server's says nothing of them.
type cost struct {
	quickest [32]batchCost
}

type batchCost struct {
	rows    int // 0: there is none
	seconds float64
}

func (c *cost) add(rows int, took time.Duration) {
	for i := range c.quickest {
		c.quickest[i].seconds *= 1 + costForgets
	}
	if q := &c.quickest[sizeOf(rows)]; q.rows == 0 || took.Seconds() <= q.seconds {
		*q = batchCost{rows, took.Seconds()}
	}
}

// sizeOf is the n of a size from 2^n rows on.
func sizeOf(rows int) int { return min(bits.Len(uint(max(rows, 1)))-1, 31) } //nolint:gosec // it is positive

// perRow is what one row more takes in batches of so many, in seconds: by the line through the quickest of about that size and the
// quickest smaller one, or larger if there is none, all of a batch's time at most, and a fiftieth of it at least.
func (c *cost) perRow(rows int) float64 {
	at := sizeOf(rows)
	for c.quickest[at].rows == 0 && at > 0 {
		at--
	}
	if c.quickest[at].rows == 0 { // all of them were larger
		for at = sizeOf(rows); c.quickest[at].rows == 0; at++ {
		}
	}
	large := c.quickest[at]
	for _, q := range c.quickest[at+1:] { // a batch takes no longer than a larger one
		if q.rows > 0 && q.seconds < large.seconds {
			large = q
		}
	}
	most := large.seconds / float64(large.rows)
	var small batchCost
	for _, q := range c.quickest[:at] {
		if q.rows > 0 && 2*q.rows <= large.rows && (small.rows == 0 || q.seconds < small.seconds) {
			small = q
		}
	}
	if small.rows == 0 { // then the line leads to a larger one
		small, large = large, batchCost{}
		for _, q := range c.quickest[at+1:] {
			if q.rows >= 2*small.rows && (large.rows == 0 || q.seconds < large.seconds) {
				large = q
			}
		}
	}
	if large.rows <= small.rows {
		return most
	}
	return min(max((large.seconds-small.seconds)/float64(large.rows-small.rows), most/costShare), most)
}
