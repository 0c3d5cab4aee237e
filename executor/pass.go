package executor

import (
	"sync"
	"time"
)

// limitPass is the reason of the limit: a label of limit_reached_total and throttle_seconds_total.
const limitPass = "rows_per_pass"

// passTime is how long a pass of a running executor lasts. Once is one pass.
const passTime = time.Minute

// quota bounds what all policies together delete in one process before the next pass begins: what is due beyond that waits. The first to ask
// in a pass gets its rows; turns go round, so that no policy has all of it. What is deleted by cascade is not counted, nor what is dropped
// with its partition. Zero is no bound. Safe for concurrent use.
type quota struct {
	most int64

	mu    sync.Mutex
	lasts time.Duration // 0: there is no next
	left  int64
	until time.Time
}

// begin begins the first pass.
func (p *quota) begin(lasts time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lasts, p.left, p.until = lasts, p.most, time.Time{}
}

// take grants rows for a batch. Where it grants none, until is when the next pass begins; zero: there is none.
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
