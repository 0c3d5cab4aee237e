package evidence

import (
	"maps"
	"slices"
)

// FormatSpanner follows Spanner's data change record.
const FormatSpanner = "spanner"

// Format writes events and markers as the values of records. One is made for each Router and for one database; it may keep
// what neighbours have in common, and what it writes depends on the event and the database alone. A route names its
// format.
//
// Another one is a file beside spanner.go and a line in formats.
type Format interface {
	// Alike prepares for events that differ from e in nothing but ordinal and keys.
	Alike(e *Event)
	// AppendEvent writes an event that is like the one that Alike was called with.
	AppendEvent(dst []byte, e *Event, keys *EventKeys) []byte
	// AppendMarker writes a marker.
	AppendMarker(dst []byte, m *Marker) []byte
}

// EventKeys are what names an event's row, as its record's key has it.
type EventKeys struct {
	Columns []Key
	Hashed  []int  // which of them are hashes of their values
	JSON    []byte // the columns as an object
}

var formats = map[string]func(*Source) Format{
	FormatSpanner: newSpannerFormat,
}

// formatNames are what a route may name, for errors.
func formatNames() []string { return slices.Sorted(maps.Keys(formats)) }
