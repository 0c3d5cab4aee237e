package executor

import (
	"math/bits"
	"time"
)

// firstBatch is the size of a policy's first batch in a process: small, because nothing is known of its table.
const firstBatch = 50

// batchSize finds the size of a batch, or of a portion where batches share the time, that takes about the wanted time. From one batch to the next it at most
// doubles, at unlimited pace grows to four times as many rows, and at most halves.
type batchSize struct {
	rows  int // 0: not known
	given int // how many sizes were given at gentle pace
	// resisted: the last batch failed. A search by halving needs the size to stay the same.
	resisted bool
	cost     cost
}

// next returns the next batch's size, at most largest.
func (b *batchSize) next(largest int) int {
	if b.rows == 0 {
		b.rows = firstBatch
	}
	return min(b.rows, largest)
}

const (
	// At gentle pace every probeEvery-th batch has a different size, probeShare of the usual one: the time that rows add can only be told
	// from batches of two sizes. If batches are small, the probe is larger instead.
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

// learn adjusts the size to the time of a batch that was as large as allowed, by the rows that it picked or checked. It ignores a smaller
// batch, which ended because there were no more rows.
func (b *batchSize) learn(limit int, full bool, took, wanted time.Duration) {
	if !full || took <= 0 {
		return
	}
	b.resize(limit, float64(limit)*float64(wanted)/float64(took), 4)
}

// learnGentle is learn for a policy at gentle pace, where wanted is the time of the rows alone. The fixed cost of a batch is left out,
// because smaller ones would only pay it more often.
func (b *batchSize) learnGentle(limit int, took, wanted time.Duration) {
	if took <= 0 {
		return
	}
	b.cost.add(limit, took)
	base := min(b.rows, probeShare*limit) // a probe is no base for the next size
	rows := wanted.Seconds() / b.cost.perRow(base)
	if b.given > gentleStart {
		rows = min(rows, gentleGrowth*float64(base)+1)
	}
	b.resize(base, rows, 2)
}

func (b *batchSize) resize(limit int, rows, growth float64) {
	b.resisted = false
	b.rows = max(int(min(max(rows, float64(limit)/2), float64(limit)*growth)), 1)
}

// halve halves the size after a batch that failed.
func (b *batchSize) halve(limit int) { b.rows, b.resisted = max(limit/2, 1), true }

const (
	// costForgets is by how much each batch makes the quickest earlier ones count as slower, so that one counts for about a hundred batches.
	costForgets = 1.0 / 64
	// costShare bounds the share of a batch's time that its rows take from below: 1/costShare.
	costShare = 50
	// gentleGrowth bounds the growth from batch to batch after the first gentleStart: what rows cost shows late.
	gentleGrowth = 1.25
	gentleStart  = 16
)

// cost remembers the quickest recent batch of each size from 2^n rows on. Other load makes a batch slower, never faster, and often many
// times as slow: on a busy server a mean says nothing about the rows.
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

// sizeOf returns the n of a size from 2^n rows on.
func sizeOf(rows int) int { return min(bits.Len(uint(max(rows, 1)))-1, 31) } //nolint:gosec // it is positive

// perRow returns how many seconds one more row takes in batches of so many rows: the slope of the line through the quickest batch of about
// that size and the quickest smaller one (or larger, if there is none). It is at most the batch's whole time, and at least a fiftieth.
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
	for _, q := range c.quickest[at+1:] { // a batch takes at most as long as a larger one
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
	if small.rows == 0 { // then the line goes through a larger one
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
