package evidence

import "time"

// Header is one header of a record.
type Header struct {
	Key   string
	Value []byte
}

// Record is what goes into a topic, and what is read back from one.
type Record struct {
	Topic      string
	Partition  int32
	Key, Value []byte // nil is not empty
	Headers    []Header
	Time       time.Time
}

// Header is the value of a header; empty if the record does not have it.
func (r *Record) Header(name string) string {
	for i := range r.Headers {
		if r.Headers[i].Key == name {
			return string(r.Headers[i].Value)
		}
	}
	return ""
}
