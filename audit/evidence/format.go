package evidence

import (
	"maps"
	"slices"

	"lapse/schemas"
)

// The formats of events.
const (
	FormatSpanner     = "spanner"     // follows Spanner's data change record
	FormatDebezium    = "debezium"    // follows what Debezium's connector for PostgreSQL writes as JSON without schema
	FormatCloudEvents = "cloudevents" // CloudEvents 1.0 in structured mode, with an event in the default format as its data
)

// Format writes events and markers as the values of records. One is made for each Router and for one database. It may keep what successive
// events have in common, but its output depends only on the event and the database. A route names its format.
//
// Another one is a file beside cloudevents.go and a line in formats.
type Format interface {
	// Alike prepares for events that differ from e only in ordinal, keys, values and judgement.
	Alike(e *Event)
	// AppendKeys writes a row's key as a JSON object: the record's key.
	AppendKeys(dst []byte, keys []Key) []byte
	// AppendEvent writes an event that is like the one that Alike was called with.
	AppendEvent(dst []byte, e *Event, keys *EventKeys) []byte
	// AppendMarker writes a marker.
	AppendMarker(dst []byte, m *Marker) []byte
	// AppendHeaders adds the format's own headers of the last event or marker, after those that every record has. They are valid until the
	// next one is written.
	AppendHeaders(dst []schemas.Header) []schemas.Header
}

// EventKeys are the columns that name an event's row, as in its record's key.
type EventKeys struct {
	Columns []Key
	Hashed  []int  // which of them are hashes of their values
	Sizes   []int  // sizes of those values in bytes, if they are hashed because they are long
	JSON    []byte // the columns as an object
	Values  EventValues
}

// EventValues are the columns that a policy wants shown in addition to the keys.
type EventValues struct {
	Columns []Key
	Hashed  []int
	Sizes   []int
	JSON    []byte // the columns as an object
}

var formats = map[string]func(*Source) Format{
	FormatSpanner:     newSpannerFormat,
	FormatCloudEvents: newCloudEventsFormat,
	FormatDebezium:    newDebeziumFormat,
}

// formatNames are the valid names of formats, for errors.
func formatNames() []string { return slices.Sorted(maps.Keys(formats)) }
