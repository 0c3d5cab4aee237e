package evidence

import (
	"time"

	"lapse/replication"
)

// CoverageContent says that everything up to its position has been read: by the clock, or because a heartbeat was read
// there.
type CoverageContent struct {
	At        time.Time  // of a heartbeat its commit
	Heartbeat *Heartbeat // nil for none
	Ancestry  replication.Ancestry
}

// Kind is KindCoverage.
func (*CoverageContent) Kind() Kind           { return KindCoverage }
func (c *CoverageContent) written() time.Time { return c.At.UTC().Truncate(time.Microsecond) }
func (c *CoverageContent) read() *Heartbeat   { return c.Heartbeat }

func (c *CoverageContent) append(b []byte, form TextForm) []byte {
	if c.Heartbeat == nil {
		b = appendInstant(append(b, `,"at":`...), c.written())
	} else {
		b = appendInstant(append(b, `,"at":`...), c.Heartbeat.At)
		b = appendHeartbeat(append(b, `,"heartbeat":`...), c.Heartbeat, form)
	}
	return appendAncestry(b, c.Ancestry)
}

// appendAncestry writes the timelines that the server has left, so that a later start can tell whether it reads the same
// database.
func appendAncestry(b []byte, ancestry replication.Ancestry) []byte {
	b = append(b, `,"ancestry":[`...)
	for i, left := range ancestry {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendUint(append(b, `{"timeline":`...), uint64(left.Timeline))
		b = append(appendLSN(append(b, `,"end":`...), left.At), '}')
	}
	return append(b, ']')
}
