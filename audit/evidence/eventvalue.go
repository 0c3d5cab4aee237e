package evidence

import (
	"encoding/json"
	"fmt"
	"strconv"

	"lapse/replication"
	"lapse/schemas"
)

// EventValue is what an event or a marker says about itself in its value alone, as in a file.
type EventValue struct {
	Format   string
	Position replication.Position
	System   uint64
	Database uint32
	Cause    string // as it is written

	// In the formats that have it once, which Debezium's does not.
	Table string
	Keys  json.RawMessage // nil if it names no row
	Mods  int             // number of rows: none or one
}

type lapseBlock struct {
	Cause    string `json:"cause"`
	System   string `json:"system_identifier"`
	Database uint32 `json:"database_oid"`
	History  uint32 `json:"history"`
	Timeline uint32 `json:"timeline"`
	Commit   string `json:"commit_lsn"`
	Ordinal  uint32 `json:"ordinal"`
}

type modified struct {
	Table string `json:"table_name"`
	Mods  []struct {
		Keys json.RawMessage `json:"keys"`
	} `json:"mods"`
}

// ParseEventValue reads an event of any format. Its error is ErrNoEvent, and does not repeat the contents. The result refers to value.
func ParseEventValue(value []byte) (*EventValue, error) {
	if v := scanEvent(value); v != nil {
		return v, nil
	}
	return parseEventValue(value)
}

// parseEventValue parses any event.
func parseEventValue(value []byte) (*EventValue, error) {
	var event struct {
		modified
		ID     string      `json:"event_id"` // FormatSpanner
		Source any         `json:"source"`   // FormatDebezium
		Lapse  *lapseBlock `json:"lapse"`    // both
		Data   struct {    // FormatCloudEvents
			modified
			Lapse *lapseBlock `json:"lapse"`
		} `json:"data"`
	}
	if err := json.Unmarshal(value, &event); err != nil {
		return nil, ErrNoEvent
	}
	v, block, of := &EventValue{Format: FormatSpanner}, event.Lapse, &event.modified
	switch {
	case event.Data.Lapse != nil:
		v.Format, block, of = FormatCloudEvents, event.Data.Lapse, &event.Data.modified
	case block == nil:
		return nil, ErrNoEvent
	case event.ID == "":
		v.Format = FormatDebezium
	}
	var err error
	if v.System, err = strconv.ParseUint(block.System, 10, 64); err != nil {
		return nil, ErrNoEvent
	}
	v.Database, v.Cause, v.Table, v.Mods = block.Database, block.Cause, of.Table, len(of.Mods)
	if v.Mods > 0 {
		v.Keys = of.Mods[0].Keys
	}
	v.Position = replication.Position{History: schemas.History(block.History), Timeline: schemas.Timeline(block.Timeline), Ordinal: block.Ordinal}
	if v.Position.Commit, err = schemas.ParseLSN(block.Commit); err != nil {
		return nil, ErrNoEvent
	}
	return v, nil
}

// Fits returns an error unless this route writes such events.
func (v *EventValue) Fits(r *Route) error {
	switch {
	case v.System != r.Source.SystemIdentifier || v.Database != r.Source.DatabaseOID:
		return fmt.Errorf("it has events of database %d of system %d; this one is %d of %d", v.Database, v.System, r.Source.DatabaseOID, r.Source.SystemIdentifier)
	case v.Format != r.Format:
		return fmt.Errorf("its events are in format %s, and those to come in %s", v.Format, r.Format)
	default:
		return nil
	}
}
