package schemas

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Epoch is a month in UTC, such as 2026-11. Each has a key of its own in the file named rows, so that the rows of one month can be made
// unlinkable without those of another.
type Epoch string

const epochForm = "2006-01"

// EpochOf is the epoch of an instant.
func EpochOf(t time.Time) Epoch { return Epoch(t.UTC().Format(epochForm)) }

// ParseEpoch reads a month.
func ParseEpoch(text string) (Epoch, error) {
	if at, err := time.Parse(epochForm, text); err != nil || EpochOf(at) != Epoch(text) {
		return "", fmt.Errorf("%q is no month such as 2026-11", text)
	}
	return Epoch(text), nil
}

// Begin is the month's first instant.
func (e Epoch) Begin() time.Time {
	at, _ := time.Parse(epochForm, string(e)) // an epoch is a month
	return at
}

// Next is the month after it.
func (e Epoch) Next() Epoch { return EpochOf(e.Begin().AddDate(0, 1, 0)) }

// EpochKeys are the keys of the months that have one. That of a destroyed month is there, and nil.
type EpochKeys map[Epoch]Key

// End is when the first month begins, from that of now on, that has no key.
func (k EpochKeys) End(now time.Time) time.Time {
	month := EpochOf(now)
	for k[month] != nil {
		month = month.Next()
	}
	return month.Begin()
}

// Epochs are the months, the first one first.
func (k EpochKeys) Epochs() []Epoch { return slices.Sorted(maps.Keys(k)) }
