package schemas

import "time"

// Header is one header of a record.
type Header struct {
	Key   string
	Value []byte
}

// Record is a record that is published into a topic, or read back from one.
type Record struct {
	Topic     string
	Partition int32

	// Key and Value may be nil, which in Kafka differs from empty.
	Key, Value []byte
	Headers    []Header

	// Time is the record's timestamp, in milliseconds. Use the time of the commit, not the present: a record that is published again after a
	// restart must get the same Time. It must be set, and not before 1970. A Time more than a minute ahead of the publisher's clock is
	// replaced by that clock's.
	Time time.Time

	// Follows says that another record for the same partition comes at once, so this one may wait for it. It is not published.
	Follows bool
}

// HeaderOp is the key of the header with the kind of the record. OpFence is its value in the records with which a publisher takes over a
// partition; consumers skip them.
const (
	HeaderOp = "lapse-op"
	OpFence  = "fence"
)

// Header returns the value of a header, or "" if the record does not have it.
func (r *Record) Header(name string) string {
	for i := range r.Headers {
		if r.Headers[i].Key == name {
			return string(r.Headers[i].Value)
		}
	}
	return ""
}

// IsFence reports whether the record is a fence.
func (r *Record) IsFence() bool { return r.Header(HeaderOp) == OpFence }
