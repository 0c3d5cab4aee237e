package executor

import "time"

// firstBatch is what a policy begins with in a process: small, because nothing is known of its table.
const firstBatch = 50

// batchSize finds the size of batch that takes about the wanted time: it at most doubles and at most halves from one batch
// to the next.
type batchSize struct {
	rows  int // 0: nothing is known
	given int // sizes that were given at gentle pace
	// resisted says that the last batch did not get through. Whoever looks for the row by halving wants no other size.
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

// probeEvery is how often a batch at gentle pace has another size than the others: without two sizes there is no telling what
// of a batch's time its rows take.
const probeEvery = 4

// nextGentle is next, for a policy at gentle pace.
func (b *batchSize) nextGentle(largest int) int {
	rows := b.next(largest)
	b.given++
	switch {
	case b.resisted || b.given%probeEvery != 0:
		return rows
	case rows >= 8:
		return rows / 2
	default:
		return min(2*rows, largest)
	}
}

// learn takes the time of a batch into account, if it was as large as it might be, by the rows that it picked or by those that
// it looked at. Another says nothing: it ended because the rows did.
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
	b.resize(limit, wanted.Seconds()/b.cost.perRow())
}

func (b *batchSize) resize(limit int, rows float64) {
	b.resisted = false
	b.rows = max(int(min(max(rows, float64(limit)/2), float64(limit)*2)), 1)
}

// halve is for a batch that did not get through.
func (b *batchSize) halve(limit int) { b.rows, b.resisted = max(limit/2, 1), true }

const (
	// costMemory is what a batch counts for when the next one is added: about the last twenty do.
	costMemory = 0.95
	// costOutlier is how many times the expected time a batch may count for: one that waited for a disk or a processor says
	// little of its rows.
	costOutlier = 3
	// costShare is which part of the time rows are taken to be at least: 1 of so many.
	costShare = 50
)

// cost is a straight line through what the latest batches took: so much for any batch, and so much for a row.
type cost struct {
	weight, rows, time, rows2, rowsTime float64 // sums; times in seconds
}

func (c *cost) add(rows int, took time.Duration) {
	x, y := float64(rows), took.Seconds()
	if c.weight > 2 {
		perRow := c.perRow()
		y = min(y, costOutlier*(c.time/c.weight+perRow*(x-c.rows/c.weight)))
	}
	for _, sum := range []*float64{&c.weight, &c.rows, &c.time, &c.rows2, &c.rowsTime} {
		*sum *= costMemory
	}
	c.weight, c.rows, c.time, c.rows2, c.rowsTime = c.weight+1, c.rows+x, c.time+y, c.rows2+x*x, c.rowsTime+x*y
}

// perRow is what one row more takes, in seconds: all of a batch's time at most, and a fiftieth of it at least.
func (c *cost) perRow() float64 {
	rows, time := c.rows/c.weight, c.time/c.weight
	most := time / rows
	spread := c.rows2/c.weight - rows*rows
	if spread < rows*rows/1000 { // one size only
		return most
	}
	return min(max((c.rowsTime/c.weight-rows*time)/spread, most/costShare), most)
}
