package schemas

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Due says when a row is due by one column of it, so that a reader of the write-ahead log can tell without a database. It is in
// a policy's version and in the row of each of its batches, and never in the claim.
type Due struct {
	Column string   `json:"column"`
	As     DueAs    `json:"as"`
	After  []Period `json:"after,omitempty"` // added one after the other, in UTC; none: the column itself
}

// DueAs is how the text of the column is read as an instant.
type DueAs string

// The ways to read it. Dates and timestamps without a zone are UTC.
const (
	DueInstant      DueAs = "timestamptz"
	DueTimestamp    DueAs = "timestamp"
	DueDate         DueAs = "date"
	DueSeconds      DueAs = "seconds" // a whole number, since 1970
	DueMilliseconds DueAs = "milliseconds"
)

// DueEarliest is the first instant that is believed, in seconds since 1970: the first of year 4713 BC. What lies before it is never
// due.
const DueEarliest = -210_863_520_000

// Period is a time in the three parts that PostgreSQL keeps of an interval. None is negative.
type Period struct {
	Months       int32 `json:"months,omitempty"`
	Days         int32 `json:"days,omitempty"`
	Microseconds int64 `json:"microseconds,omitempty"`
}

// ParseDue reads the JSON of a Due, and refuses one with a word that it does not know: a newer program may have written it.
func ParseDue(text []byte) (*Due, error) {
	var due Due
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&due); err != nil {
		return nil, fmt.Errorf("read when a row is due: %w", err)
	}
	switch due.As {
	case DueInstant, DueTimestamp, DueDate, DueSeconds, DueMilliseconds:
	default:
		return nil, fmt.Errorf("read when a row is due: a column is read as %q, which this version does not know", due.As)
	}
	for _, p := range due.After {
		if p.Months < 0 || p.Days < 0 || p.Microseconds < 0 {
			return nil, fmt.Errorf("read when a row is due: a time is negative")
		}
	}
	return &due, nil
}
