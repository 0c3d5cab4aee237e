package evidence

import (
	"time"

	"lapse/replication"
)

// Reason is the cause of a gap or a rewind.
type Reason string

// The reasons.
const (
	// ReasonSlot: the slot was lost or dropped, and another was made. Deletions between the two were not read.
	ReasonSlot Reason = "slot"
	// ReasonPublications: somebody changed what the publications publish. Deletions meanwhile may not have been sent, or may have been sent
	// under another cause.
	ReasonPublications Reason = "publications"
	// ReasonTopic: a topic lost records, because it was deleted and created again, or cut.
	ReasonTopic Reason = "topic"
	// ReasonAccepted: a person has accepted that the log continues with a database with another past.
	ReasonAccepted Reason = "accepted"
	// ReasonTimeline: a standby was promoted that had not received everything.
	ReasonTimeline Reason = "timeline"
)

// Marker is an event that is no deletion: it concerns the order of all others. It is in every partition of both topics, at a position of
// its own, and after them as a record in the log.
//
//	Gap      what was deleted between From and To is not in the topics, or not as what it was
//	Rewind   what was published above From, up to To, never happened in the database that is audited from here on: every event
//	         before it in its partition whose position, with its history, is not below From
type Marker struct {
	Op     Op
	Reason Reason
	At     replication.Position // its own; no change has it
	Time   time.Time            // when it arose; the same whenever the record is written again
	From   Reach
	To     Reach
	Topic  string // ReasonTopic: the topic
}

// appendMarker writes what events and log records have in common about a marker.
func appendMarker(b []byte, m *Marker) []byte {
	b = append(append(append(b, `"reason":"`...), m.Reason...), '"')
	if m.Topic != "" {
		b = appendText(append(b, `,"topic":`...), m.Topic, UTF8Text)
	}
	b = appendReach(append(b, `,"from":`...), m.From)
	return appendReach(append(b, `,"to":`...), m.To)
}
