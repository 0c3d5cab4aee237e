package evidence

import (
	"encoding/json"
	"time"

	"lapse/replication"
	"lapse/schemas"
)

// CoverageContent says that everything up to its position was read: it is made at intervals, or because a heartbeat was read there.
type CoverageContent struct {
	At        time.Time  // of a heartbeat: its commit
	Heartbeat *Heartbeat // nil for none
	Ancestry  replication.Ancestry
}

// Kind is KindCoverage.
func (*CoverageContent) Kind() Kind           { return KindCoverage }
func (c *CoverageContent) written() time.Time { return c.At.UTC().Truncate(time.Microsecond) }
func (c *CoverageContent) read() (*Heartbeat, replication.Ancestry) {
	return c.Heartbeat, c.Ancestry
}

func (c *CoverageContent) append(b []byte, form TextForm) []byte {
	if c.Heartbeat == nil {
		b = appendInstant(append(b, `,"at":`...), c.written())
	} else {
		b = appendInstant(append(b, `,"at":`...), c.Heartbeat.At)
		b = appendHeartbeat(append(b, `,"heartbeat":`...), c.Heartbeat, form)
	}
	return appendAncestry(b, c.Ancestry)
}

func (c *CoverageContent) parse(record []byte, form TextForm) (err error) {
	var j struct {
		At        time.Time      `json:"at"`
		Heartbeat *heartbeatJSON `json:"heartbeat"`
		Ancestry  ancestryJSON   `json:"ancestry"`
	}
	if err = json.Unmarshal(record, &j); err != nil {
		return err
	}
	c.At, c.Heartbeat = j.At, j.Heartbeat.heartbeat(form)
	c.Ancestry, err = j.Ancestry.ancestry()
	return err
}

// appendAncestry writes the timelines that the server has left, so that a later start can check whether it reads the same database.
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

// ancestryJSON is the output of appendAncestry; nil if a record does not have it.
type ancestryJSON []struct {
	Timeline uint32 `json:"timeline"`
	End      string `json:"end"`
}

func (j ancestryJSON) ancestry() (replication.Ancestry, error) {
	if j == nil {
		return nil, nil
	}
	ancestry := replication.Ancestry{}
	for _, left := range j {
		at, err := schemas.ParseLSN(left.End)
		if err != nil {
			return nil, err
		}
		ancestry = append(ancestry, replication.Switch{Timeline: schemas.Timeline(left.Timeline), At: at})
	}
	return ancestry, nil
}
