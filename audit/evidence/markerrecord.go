package evidence

import (
	"encoding/json"
	"time"

	"lapse/replication"
)

// MarkerContent is the record of a marker.
type MarkerContent struct {
	Marker    *Marker    // without its position, which the record does not have
	Heartbeat *Heartbeat // the heartbeat that showed it; nil if none did, or if another record of the transaction has it
	Ancestry  replication.Ancestry
}

// Kind is KindGap or KindRewind.
func (c *MarkerContent) Kind() Kind {
	if c.Marker.Op == Rewind {
		return KindRewind
	}
	return KindGap
}
func (c *MarkerContent) written() time.Time { return c.Marker.Time }
func (c *MarkerContent) read() (*Heartbeat, replication.Ancestry) {
	return c.Heartbeat, c.Ancestry
}

func (c *MarkerContent) append(b []byte, form TextForm) []byte {
	b = appendInstant(append(b, `,"at":`...), c.Marker.Time)
	b = appendMarker(append(b, ','), c.Marker)
	if c.Heartbeat != nil {
		b = appendHeartbeat(append(b, `,"heartbeat":`...), c.Heartbeat, form)
	}
	return appendAncestry(b, c.Ancestry)
}

func (c *MarkerContent) parse(record []byte, form TextForm) (err error) {
	var j struct {
		At        time.Time      `json:"at"`
		Reason    Reason         `json:"reason"`
		Topic     string         `json:"topic"`
		From      Reach          `json:"from"`
		To        Reach          `json:"to"`
		Heartbeat *heartbeatJSON `json:"heartbeat"`
		Ancestry  ancestryJSON   `json:"ancestry"`
	}
	if err = json.Unmarshal(record, &j); err != nil {
		return err
	}
	m := c.Marker
	m.Reason, m.Time, m.From, m.To, m.Topic = j.Reason, j.At, j.From, j.To, j.Topic
	c.Heartbeat = j.Heartbeat.heartbeat(form)
	c.Ancestry, err = j.Ancestry.ancestry()
	return err
}
