package schemas

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// Epoch is a month in UTC, such as 2026-11. Each epoch has a key of its own in the file named rows, so that the rows of one month can be
// made unlinkable while those of the others stay linkable.
type Epoch string

const epochForm = "2006-01"

// EpochOf returns the epoch of an instant.
func EpochOf(t time.Time) Epoch { return Epoch(t.UTC().Format(epochForm)) }

// ParseEpoch reads a month.
func ParseEpoch(text string) (Epoch, error) {
	if at, err := time.Parse(epochForm, text); err != nil || EpochOf(at) != Epoch(text) {
		return "", fmt.Errorf("%q is not a month, such as 2026-11", text)
	}
	return Epoch(text), nil
}

// Begin returns the month's first instant.
func (e Epoch) Begin() time.Time {
	at, _ := time.Parse(epochForm, string(e)) // an epoch always parses
	return at
}

// Next returns the following month.
func (e Epoch) Next() Epoch { return EpochOf(e.Begin().AddDate(0, 1, 0)) }

// EpochKeys are the keys of months. A destroyed key stays in the map, as nil.
type EpochKeys map[Epoch]Key

// End returns the beginning of the first month without a key, from the month of now on.
func (k EpochKeys) End(now time.Time) time.Time {
	month := EpochOf(now)
	for k[month] != nil {
		month = month.Next()
	}
	return month.Begin()
}

// Epochs returns the months in order.
func (k EpochKeys) Epochs() []Epoch { return slices.Sorted(maps.Keys(k)) }
