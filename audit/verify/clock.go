package verify

import (
	"time"

	"lapse/audit/evidence"
)

// Clock finds transactions with a wrong commit time. A session that claims to replay another server's transactions (a replication origin)
// chooses the time of its commits, but not their place in the log, where heartbeats before and after have the server's time.
type Clock struct {
	Misdated int   // how many were found, at least
	Leaf     int64 // of the first

	beat   time.Time // of the last heartbeat; zero: none
	latest time.Time // of the transactions since
	at     int64     // its leaf
}

// clockSlack is more than a heartbeat takes to commit, and more than clocks are adjusted by while they run.
const clockSlack = time.Minute

// Next accepts the log's next record.
func (c *Clock) Next(leaf int64, r *evidence.LogRecord) {
	switch {
	case r.Heartbeat != nil:
		if c.latest.After(r.Heartbeat.At.Add(clockSlack)) {
			c.found(c.at)
		}
		c.beat, c.latest = r.Heartbeat.At, time.Time{}
	case r.Kind != evidence.KindTransaction:
	case r.Time.Before(c.beat.Add(-clockSlack)):
		c.found(leaf)
	case r.Time.After(c.latest):
		c.latest, c.at = r.Time, leaf
	}
}

func (c *Clock) found(leaf int64) {
	if c.Misdated++; c.Misdated == 1 {
		c.Leaf = leaf
	}
}
