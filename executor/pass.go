package executor

import (
	"sync"
	"time"
)

// limitPass is the reason of the limit: a label of limit_reached_total and throttle_seconds_total.
const limitPass = "rows_per_pass"

// passTime is how long a pass of a running executor lasts. Once is one pass.
const passTime = time.Minute

// quota bounds how many rows all policies of a process together delete in one pass; the rest waits for the next pass. It grants rows
// first come, first served; turns alternate, so one policy does not get them all. Rows deleted by cascade, or dropped with their
// partition, do not count. Zero is no bound. Safe for concurrent use.
type quota struct {
	most int64

	mu    sync.Mutex
	lasts time.Duration // 0: there is only one pass
	left  int64
	until time.Time
}

// begin begins the first pass.
func (p *quota) begin(lasts time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lasts, p.left, p.until = lasts, p.most, time.Time{}
}

// take grants rows for a batch. If it grants none, until is when the next pass begins; zero: never.
func (p *quota) take(wanted int, now time.Time) (granted int, until time.Time) {
	if p.most == 0 {
		return wanted, time.Time{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lasts > 0 && !now.Before(p.until) {
		p.left, p.until = p.most, now.Add(p.lasts)
	}
	granted = int(min(int64(wanted), p.left))
	p.left -= int64(granted)
	return granted, p.until
}

// giveBack returns rows that were granted and not deleted.
func (p *quota) giveBack(rows int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = min(p.left+int64(rows), p.most)
}
