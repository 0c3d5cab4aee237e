package schemas

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Due says from which column of a row its due time follows, and how, so that a reader of the write-ahead log can tell without a
// database. It is in a policy's version and in the ledger row of each of its batches, and never in the claim.
type Due struct {
	Column string   `json:"column"`
	As     DueAs    `json:"as"`
	After  []Period `json:"after,omitempty"` // added to the column one after the other, in UTC
}

// DueAs is how the text of the column is read as an instant.
type DueAs string

// The ways to read it. Dates and timestamps without a zone are read as UTC.
const (
	DueInstant      DueAs = "timestamptz"
	DueTimestamp    DueAs = "timestamp"
	DueDate         DueAs = "date"
	DueSeconds      DueAs = "seconds" // a whole number, since 1970
	DueMilliseconds DueAs = "milliseconds"
)

// DueEarliest is the earliest valid instant, in seconds since 1970: the beginning of the year 4713 BC. A row with an earlier value is
// never due.
const DueEarliest = -210_863_520_000

// Period is a time in the three parts that PostgreSQL stores of an interval. None is negative.
type Period struct {
	Months       int32 `json:"months,omitempty"`
	Days         int32 `json:"days,omitempty"`
	Microseconds int64 `json:"microseconds,omitempty"`
}

// ParseDue reads the JSON of a Due. It refuses words that it does not know, because a newer program may have written them.
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
