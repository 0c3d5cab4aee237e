// Package backoff is the pause between two tries of something that failed: twice as long each time, up to a limit, with
// chance in it, so that those who failed together do not come back together.
package backoff

import (
	"context"
	"math/rand/v2"
	"time"
)

// Backoff is the pauses of one thing that is tried again. The zero value does not pause; set Min and Max. Not safe for
// concurrent use.
type Backoff struct {
	Min, Max time.Duration
	next     time.Duration
}

// Next is the length of the next pause: between half of and all of its nominal length, which is Min at first and doubles
// up to Max.
func (b *Backoff) Next() time.Duration {
	nominal := min(max(b.next, b.Min), b.Max)
	b.next = min(2*nominal, b.Max)
	if nominal < 2 {
		return nominal
	}
	return nominal/2 + rand.N(nominal/2+1)
}

// Reset makes the next pause the first again. Call it when something has succeeded.
func (b *Backoff) Reset() { b.next = 0 }

// Wait lets the next pause pass. It returns early, with the context's cause, when ctx ends.
func (b *Backoff) Wait(ctx context.Context) error { return Sleep(ctx, b.Next()) }

// Sleep lets d pass. It returns early, with the context's cause, when ctx ends.
func Sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
