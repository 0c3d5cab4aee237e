package audit

import (
	"time"

	"lapse/audit/evidence"
)

// cover makes a record that everything up to the present position was read.
func (r *relay) cover() {
	now := r.now()
	upTo := r.coverage.upTo
	r.coverage.done(now)
	content := &evidence.CoverageContent{At: now, Ancestry: r.ancestry}
	r.enqueue(r.writer.Write(content, evidence.LogPosition{Reach: upTo}, false))
}

// coverage decides when to record that nothing was deleted.
type coverage struct {
	upTo   evidence.Reach // what was read, with all its records in the log's queue
	wanted bool           // a server or an arming policy waits for it
	last   time.Time
	every  time.Duration // coverageEvery; tests replace it
}

// A coverage record is made each half minute if there is something to cover, because the executor stops when its deletions are unconfirmed for a
// minute; and at most once a second if a server or a policy waits for it.
const (
	coverageEvery = 30 * time.Second
	coveragePause = time.Second
)

// begin starts again at a position: everything above it will be read again.
func (c *coverage) begin(at evidence.Reach, now time.Time) {
	c.upTo, c.wanted = at, false
	if c.last.IsZero() {
		c.last = now.Add(-coveragePause) // the first may be due at once
	}
}

// reached records that everything up to a position was read.
func (c *coverage) reached(at evidence.Reach) {
	if c.upTo.Before(at) {
		c.upTo = at
	}
}

func (c *coverage) done(now time.Time) { c.last, c.wanted = now, false }

// due returns when the next record is to be made; zero if there is nothing to cover, or no room for it. No record is made below the log's newest one,
// which may belong to a transaction whose records are incomplete.
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
