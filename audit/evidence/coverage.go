package evidence

import (
	"time"

	"lapse/replication"
)

// CoverageContent says that everything up to its position has been read: by the clock, or because a heartbeat was read
// there.
type CoverageContent struct {
	At           time.Time  // of a heartbeat its commit
	Heartbeat    *Heartbeat // nil for none
	Surroundings *Surroundings
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
	return c.Surroundings.append(b)
}

// Surroundings are what the record of a coverage or a marker says of server and topics, so that a later start can tell
// whether it reads the same database and the same topics.
type Surroundings struct {
	Ancestry replication.Ancestry // the timelines that the server has left
	Ends     []TopicEnds          // where each topic ended, fences included; nil for all records but those of heartbeats
	Process  string               // that wrote the fences
}

// TopicEnds are where the partitions of a topic end.
type TopicEnds struct {
	Topic        string
	Ends, Fences []int64 // by partition; -1 where nothing is known
}

func (s *Surroundings) append(b []byte) []byte {
	if s == nil {
		return b
	}
	b = append(b, `,"ancestry":[`...)
	for i, left := range s.Ancestry {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendUint(append(b, `{"timeline":`...), uint64(left.Timeline))
		b = append(appendLSN(append(b, `,"end":`...), left.At), '}')
	}
	if b = append(b, ']'); s.Ends == nil {
		return b
	}
	b = append(b, `,"ends":{`...)
	for i := range s.Ends {
		b = appendOffsets(b, i, s.Ends[i].Topic, s.Ends[i].Ends)
	}
	b = append(b, `},"fences":{`...)
	for i := range s.Ends {
		b = appendOffsets(b, i, s.Ends[i].Topic, s.Ends[i].Fences)
	}
	return appendText(append(b, `},"process":`...), s.Process, UTF8Text)
}

func appendOffsets(b []byte, i int, topic string, offsets []int64) []byte {
	if i > 0 {
		b = append(b, ',')
	}
	b = append(appendText(b, topic, UTF8Text), ':', '[')
	for k, offset := range offsets {
		if k > 0 {
			b = append(b, ',')
		}
		b = appendInt(b, offset)
	}
	return append(b, ']')
}
