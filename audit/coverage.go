package audit

import (
	"time"

	"lapse/audit/evidence"
)

// cover records that everything has been read up to where it has.
func (r *relay) cover() {
	now := r.now()
	upTo := r.coverage.upTo
	r.coverage.done(now)
	content := &evidence.CoverageContent{At: now, Ancestry: r.ancestry}
	r.enqueue(r.writer.Write(content, evidence.LogPosition{Reach: upTo}, false))
}

// coverage decides when the log says that there was nothing.
type coverage struct {
	upTo   evidence.Reach // what has been read, with everything in the log's queue that came of it
	wanted bool           // somebody waits for it: a server that asks, a policy that is to be armed
	last   time.Time
	every  time.Duration // coverageEvery; tests make it longer
}

// A coverage record is made each half minute while there is something to cover, since the executor stops when what it did
// has been unconfirmed for a minute; and at most once a second when somebody waits for it.
const (
	coverageEvery = 30 * time.Second
	coveragePause = time.Second
)

// begin starts over at a position: what was known beyond it will be read again.
func (c *coverage) begin(at evidence.Reach, now time.Time) {
	c.upTo, c.wanted = at, false
	if c.last.IsZero() {
		c.last = now.Add(-coveragePause) // the first may be due at once
	}
}

// reached takes note that everything up to a position has been read.
func (c *coverage) reached(at evidence.Reach) {
	if c.upTo.Before(at) {
		c.upTo = at
	}
}

func (c *coverage) done(now time.Time) { c.last, c.wanted = now, false }

// due is when the next record is to be made; the zero time if there is nothing to cover, or no room for it. None is
// below the log's newest record, which may be of a transaction that is not wholly there.
func (c *coverage) due(r *relay) time.Time {
	switch {
	case !r.reach.Before(c.upTo), !r.logged.Reach.Before(c.upTo), r.queue.full():
		return time.Time{}
	case c.wanted:
		return c.last.Add(coveragePause)
	default:
		return c.last.Add(c.every)
	}
}

func (c *coverage) isDue(r *relay) bool {
	due := c.due(r)
	return !due.IsZero() && !r.now().Before(due)
}
