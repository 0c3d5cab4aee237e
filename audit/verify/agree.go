package verify

import (
	"bytes"

	"lapse/audit/evidence"
	"lapse/schemas"
)

// agrees reports whether an event's value names the same row, table, cause and position as its headers and its key. For Debezium's form it
// compares only cause and position.
func agrees(rec *schemas.Record, format string) bool {
	v, err := evidence.ParseEventValue(rec.Value)
	if err != nil || v.Format != format {
		return false
	}
	if at, err := evidence.EventPosition(rec); err != nil || at != v.Position {
		return false
	}
	if v.Cause != rec.Header(evidence.HeaderCause) {
		return false
	}
	if format == evidence.FormatDebezium {
		return true
	}
	if v.Mods > 1 || v.Mods == 1 && !bytes.Equal(v.Keys, rec.Key) {
		return false
	}
	return v.Table == rec.Header(evidence.HeaderTable)
}
