package executor

import "time"

// firstBatch is what a policy begins with in a process: small, because nothing is known of its table.
const firstBatch = 50

// batchSize finds the size of batch that takes about the wanted time: it at most doubles and at most halves from one batch
// to the next.
type batchSize struct {
	rows int // 0: nothing is known
}

// next is the next batch's size, no more than largest.
func (b *batchSize) next(largest int) int {
	if b.rows == 0 {
		b.rows = firstBatch
	}
	return min(b.rows, largest)
}

// learn takes the time of a batch into account, if it was as large as it might be, by the rows that it picked or by those that
// it looked at. Another says nothing: it ended because the rows did.
func (b *batchSize) learn(limit int, full bool, took, wanted time.Duration) {
	if !full || took <= 0 {
		return
	}
	factor := min(max(float64(wanted)/float64(took), 0.5), 2)
	b.rows = max(int(float64(limit)*factor), 1)
}

// halve is for a batch that did not get through.
func (b *batchSize) halve(limit int) { b.rows = max(limit/2, 1) }
