package evidence

import (
	"time"

	"lapse/replication"
)

// Reason says what made a gap or a rewind.
type Reason string

// The reasons.
const (
	// ReasonSlot: the slot was lost or dropped, and another was made. What was deleted between the two was read by nobody.
	ReasonSlot Reason = "slot"
	// ReasonPublications: somebody changed what the publications publish. What was deleted meanwhile may not have been sent,
	// or may have been sent under another cause.
	ReasonPublications Reason = "publications"
	// ReasonTopic: a topic lost records that were in it: it was deleted and made again, or cut.
	ReasonTopic Reason = "topic"
	// ReasonAccepted: a person has said that the log goes on with a database whose past is another.
	ReasonAccepted Reason = "accepted"
	// ReasonTimeline: a standby was promoted that had not received everything.
	ReasonTimeline Reason = "timeline"
)

// Marker is an event that is no deletion: it says something about the order of all others. It is in every
// partition of both topics, at a position of its own, and as a record in the log after them.
//
//	Gap      what was deleted between From and To is not in the topics, or not as what it was
//	Rewind   what was published above From, up to To, never happened in the database that is audited from here on: every event
//	         before it in its partition whose position, with its history, is not below From
type Marker struct {
	Op     Op
	Reason Reason
	At     replication.Position // its own; no change has it
	Time   time.Time            // when it came to be, as far as the same record says the same whenever it is written
	From   Reach
	To     Reach
	Topic  string // ReasonTopic: the one
}

// appendMarker writes what events and the log say of a marker alike.
func appendMarker(b []byte, m *Marker) []byte {
	b = append(append(append(b, `"reason":"`...), m.Reason...), '"')
	if m.Topic != "" {
		b = appendText(append(b, `,"topic":`...), m.Topic, UTF8Text)
	}
	b = appendReach(append(b, `,"from":`...), m.From)
	return appendReach(append(b, `,"to":`...), m.To)
}
