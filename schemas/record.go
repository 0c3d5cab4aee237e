package schemas

import "time"

// Header is one header of a record.
type Header struct {
	Key   string
	Value []byte
}

// Record is what is published into a topic, and what is read back from one.
type Record struct {
	Topic     string
	Partition int32

	// Key and Value may be nil, which Kafka tells apart from empty.
	Key, Value []byte
	Headers    []Header

	// Time is the record's timestamp, kept to the millisecond. A caller that publishes the same record again after a
	// restart gives the same Time: the time of the commit, not the clock on the wall. It must be set, and not before
	// 1970. One that is a minute ahead of the publisher's clock is published as of now.
	Time time.Time

	// Follows says that another record for the same partition comes at once, and that this one may wait for it. It is not published.
	Follows bool
}

// HeaderOp is the key of the header that says what kind of record this is. OpFence is its value in the records with which a
// publisher takes a partition over; consumers skip them.
const (
	HeaderOp = "lapse-op"
	OpFence  = "fence"
)

// Header is the value of a header; empty if the record does not have it.
func (r *Record) Header(name string) string {
	for i := range r.Headers {
		if r.Headers[i].Key == name {
			return string(r.Headers[i].Value)
		}
	}
	return ""
}

// IsFence tells whether the record is a fence.
func (r *Record) IsFence() bool { return r.Header(HeaderOp) == OpFence }
