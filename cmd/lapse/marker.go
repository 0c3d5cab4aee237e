package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"lapse/audit/evidence"
	"lapse/schemas"
)

// isMarker says whether a record is no deletion, but says something of the order of all events.
func isMarker(r *schemas.Record) bool {
	op := r.Header(schemas.HeaderOp)
	return op == evidence.Gap.String() || op == evidence.Rewind.String()
}

// markerBody is what a gap or a rewind says beyond its headers.
type markerBody struct {
	Lapse struct {
		Reason   evidence.Reason `json:"reason"`
		Topic    string          `json:"topic"`
		From, To evidence.Reach
	} `json:"lapse"`
}

// markerLine says in words what a marker means for whoever consumes the topics.
func markerLine(r *schemas.Record) string {
	op := r.Header(schemas.HeaderOp)
	var m markerBody
	if err := json.Unmarshal(r.Value, &m); err != nil {
		return op + ", and its body cannot be read"
	}
	why := reasonText(&m)
	if op == evidence.Rewind.String() {
		return fmt.Sprintf("rewind above %s: what was published above it, up to %s, never happened in the database that goes on here (%s)",
			m.Lapse.From, m.Lapse.To, why)
	}
	return fmt.Sprintf("gap from %s to %s: what was deleted in between is not in the topics, or not as what it was (%s)",
		m.Lapse.From, m.Lapse.To, why)
}

func reasonText(m *markerBody) string {
	switch m.Lapse.Reason {
	case evidence.ReasonSlot:
		return "the slot was gone, and another was made"
	case evidence.ReasonPublications:
		return "somebody changed what is published"
	case evidence.ReasonTopic:
		return strings.TrimSpace("records are gone from topic " + m.Lapse.Topic)
	case evidence.ReasonAccepted:
		return "a person accepted this database's past"
	case evidence.ReasonTimeline:
		return "a standby was promoted without it"
	default:
		return string(m.Lapse.Reason)
	}
}
