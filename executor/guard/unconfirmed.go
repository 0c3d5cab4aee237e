package guard

import (
	"slices"
	"sync"
	"time"

	"lapse/schemas"
)

// Unconfirmed remembers up to which position the auditor must confirm the deletions, and since when. The zero value is ready. Safe for
// concurrent use.
//
// A position that is asked for after a batch has ended is above the batch. With several workers, the answer to one may arrive just after
// the batch of another has ended, above that position. So a worker draws a ticket before it asks, and the position counts only for
// batches that had ended by then; later ones wait for the next position. A ticket without an answer has no effect.
type Unconfirmed struct {
	mu     sync.Mutex
	number Ticket    // of the batch that ended last
	ended  []ended   // batches without a known position above them
	bounds []ceiling // positions above batches, not confirmed at the last reading
}

// Ticket is drawn before a position is asked for.
type Ticket uint64

type ended struct {
	number Ticket
	at     time.Time
}

// ceiling is a position above every batch that ended before an instant and that no earlier ceiling covers.
type ceiling struct {
	at    time.Time // when the oldest of them ended
	below schemas.LSN
}

// Ended records that a batch may have committed at or before an instant.
func (u *Unconfirmed) Ended(at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.number++
	u.ended = append(u.ended, ended{u.number, at})
}

// Draw returns a ticket. The caller draws it before it asks for a position.
func (u *Unconfirmed) Draw() Ticket {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.number
}

// Below records that position was the end of the log at some instant after ticket was drawn.
func (u *Unconfirmed) Below(ticket Ticket, position schemas.LSN) {
	u.mu.Lock()
	defer u.mu.Unlock()
	var oldest time.Time
	u.ended = slices.DeleteFunc(u.ended, func(e ended) bool {
		if e.number > ticket {
			return false
		}
		if oldest.IsZero() || e.at.Before(oldest) {
			oldest = e.at
		}
		return true
	})
	if !oldest.IsZero() {
		u.add(ceiling{oldest, position})
	}
}

// require adds a position that must be confirmed.
func (u *Unconfirmed) require(at time.Time, position schemas.LSN) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.add(ceiling{at, position})
}

// add merges the bounds of one second: the older instant and the higher position.
func (u *Unconfirmed) add(b ceiling) {
	if n := len(u.bounds); n > 0 {
		if last := &u.bounds[n-1]; b.at.Sub(last.at).Abs() < time.Second {
			last.below = max(last.below, b.below)
			if b.at.Before(last.at) {
				last.at = b.at
			}
			return
		}
	}
	u.bounds = append(u.bounds, b)
}

// confirm drops the bounds below the confirmed position.
func (u *Unconfirmed) confirm(confirmed schemas.LSN) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.bounds = slices.DeleteFunc(u.bounds, func(b ceiling) bool { return b.below <= confirmed })
}

// oldest returns the bound that has waited longest; false if none waits.
func (u *Unconfirmed) oldest() (ceiling, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.bounds) == 0 {
		return ceiling{}, false
	}
	return slices.MinFunc(u.bounds, func(a, b ceiling) int { return a.at.Compare(b.at) }), true
}
