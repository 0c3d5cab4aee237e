package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"lapse/audit/evidence"
	"lapse/schemas"
)

// isMarker reports whether a record is not a deletion but concerns the order of all events.
func isMarker(r *schemas.Record) bool {
	op := r.Header(schemas.HeaderOp)
	return op == evidence.Gap.String() || op == evidence.Rewind.String()
}

// markerBody is the content of a gap or a rewind in addition to its headers, in any format.
type markerBody struct {
	Lapse markerFacts `json:"lapse"`
	Data  struct {    // of a CloudEvent
		Lapse markerFacts `json:"lapse"`
	} `json:"data"`
}

type markerFacts struct {
	Reason   evidence.Reason `json:"reason"`
	Topic    string          `json:"topic"`
	From, To evidence.Reach
}

func (m *markerBody) facts() *markerFacts {
	if m.Lapse.Reason == "" {
		return &m.Data.Lapse
	}
	return &m.Lapse
}

// markerLine explains to a consumer of the topics what a marker means.
func markerLine(r *schemas.Record) string {
	op := r.Header(schemas.HeaderOp)
	var body markerBody
	if err := json.Unmarshal(r.Value, &body); err != nil {
		return op + ", and its body cannot be read"
	}
	m := body.facts()
	why := reasonText(m)
	if op == evidence.Rewind.String() {
		return fmt.Sprintf("rewind above %s: the events above it, up to %s, never happened in this database (%s)",
			m.From, m.To, why)
	}
	return fmt.Sprintf("gap from %s to %s: deletions in between are missing from the topics, or have the wrong cause (%s)",
		m.From, m.To, why)
}

func reasonText(m *markerFacts) string {
	switch m.Reason {
	case evidence.ReasonSlot:
		return "the slot was gone, and was made again"
	case evidence.ReasonPublications:
		return "somebody changed the publications"
	case evidence.ReasonTopic:
		return strings.TrimSpace("records are gone from topic " + m.Topic)
	case evidence.ReasonAccepted:
		return "a person accepted this database's history"
	case evidence.ReasonTimeline:
		return "a standby was promoted without it"
	default:
		return string(m.Reason)
	}
}
