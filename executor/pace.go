package executor

import "time"

// firstBatch is what a policy begins with in a process: small, because nothing is known of its table.
const firstBatch = 50

// pace finds the size of batch that takes about the wanted time: it at most doubles and at most halves from one batch to
// the next.
type pace struct {
	rows int // 0: nothing is known
}

// size is the next batch's, no more than largest.
func (p *pace) size(largest int) int {
	if p.rows == 0 {
		p.rows = firstBatch
	}
	return min(p.rows, largest)
}

// took learns from a batch. A short one says nothing: it ended because the rows did.
func (p *pace) took(limit int, picked int64, took, want time.Duration) {
	if picked < int64(limit) || took <= 0 {
		return
	}
	factor := min(max(float64(want)/float64(took), 0.5), 2)
	p.rows = max(int(float64(limit)*factor), 1)
}

// halve is for a batch that did not get through.
func (p *pace) halve(limit int) { p.rows = max(limit/2, 1) }
