package verify

import (
	"bytes"
	"encoding/json"

	"lapse/audit/evidence"
	"lapse/schemas"
)

// said is what an event's value says of what its headers and its key say too.
type said struct {
	Table string `json:"table_name"`
	Mods  []struct {
		Keys json.RawMessage `json:"keys"`
	} `json:"mods"`
	Lapse struct {
		Cause string `json:"cause"`
	} `json:"lapse"`
}

// agrees reports whether an event's value says of its row, table, cause and position what its headers and its key say. Of Debezium's form only
// cause and position are compared.
func agrees(rec *schemas.Record, format string) bool {
	v, err := evidence.ParseEventValue(rec.Value)
	if err != nil || v.Format != format {
		return false
	}
	if at, err := evidence.EventPosition(rec); err != nil || at != v.Position {
		return false
	}
	var event struct {
		said
		Data said `json:"data"`
	}
	if json.Unmarshal(rec.Value, &event) != nil {
		return false
	}
	of := &event.said
	if format == evidence.FormatCloudEvents {
		of = &event.Data
	}
	if of.Lapse.Cause != rec.Header(evidence.HeaderCause) {
		return false
	}
	if format == evidence.FormatDebezium {
		return true
	}
	if len(of.Mods) > 1 || len(of.Mods) == 1 && !bytes.Equal(of.Mods[0].Keys, rec.Key) {
		return false
	}
	return of.Table == rec.Header(evidence.HeaderTable)
}
