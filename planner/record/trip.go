package record

import (
	"fmt"
	"time"
)

// TripCause is why a breaker opened. It is a label of metrics.
type TripCause string

// The causes.
const (
	TooMuchDue TripCause = "max_fraction"
	SuddenJump TripCause = "sudden_jump"
	AbsurdPast TripCause = "absurd_past"
)

// Absurd is an instant before which no row of an expiring table was made: the zero time of most programs, plus a year, because some add a time zone
// or an offset.
var Absurd = time.Date(1971, 1, 1, 0, 0, 0, 0, time.UTC)

// Trip says why the next run of a policy was not begun.
type Trip struct {
	Cause     TripCause
	At        time.Time
	Due, Rows int64 // due rows, and rows of the table; below 0 if not known
	// Compared is what Due was compared with: the expected number, or how many of the due rows are from before Absurd.
	Compared int64
}

// Error is the reason with its numbers.
func (t *Trip) Error() string {
	at := t.At.UTC().Format(time.RFC3339)
	switch t.Cause {
	case SuddenJump:
		return fmt.Sprintf("%d rows were due at %s, and by the last runs at most %d were to be expected", t.Due, at, t.Compared)
	case AbsurdPast:
		return fmt.Sprintf("of %d rows that were due at %s %d expired by a time before %d, which is hardly true of them", t.Due, at, t.Compared, Absurd.Year())
	}
	return fmt.Sprintf("%d of about %d rows were due at %s, more than max_fraction allows at once", t.Due, t.Rows, at)
}
