package evidence

import (
	"bytes"
	"encoding/json"
	"time"

	"lapse/replication"
	"lapse/schemas"
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

// Marker is an event that is no deletion: it says what of the order of all others is to be known. It stands in every
// partition of both topics, at a position of its own, and as a record in the log behind them.
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

// markerKey lets markers live in a compacted topic. A JSON string: the keys of events are JSON objects.
var markerKey = []byte(`"lapse-marker"`)

// RouteMarker returns the records of a marker, one for each partition of both topics that the log's routes have used. The same marker is the same bytes.
func (r *Router) RouteMarker(m *Marker) []schemas.Record {
	value := r.MarkerValue(m)
	headers := r.format.AppendHeaders(r.markerHeaders(m))
	for i := range headers {
		headers[i].Value = bytes.Clone(headers[i].Value)
	}
	var all []schemas.Record
	for _, topic := range []Topic{r.route.System, r.route.User} {
		for partition := range topic.All() {
			all = append(all, schemas.Record{
				Topic: topic.Name, Partition: partition, Key: markerKey, Value: value, Headers: headers, Time: m.Time,
			})
		}
	}
	return all
}

// MarkerValue is the value of a marker's records.
func (r *Router) MarkerValue(m *Marker) []byte { return r.format.AppendMarker(nil, m) }

// appendMarker writes what events and the log say of a marker alike.
func appendMarker(b []byte, m *Marker) []byte {
	b = append(append(append(b, `"reason":"`...), m.Reason...), '"')
	if m.Topic != "" {
		b = appendText(append(b, `,"topic":`...), m.Topic, UTF8Text)
	}
	b = appendReach(append(b, `,"from":`...), m.From)
	return appendReach(append(b, `,"to":`...), m.To)
}

func (r *Router) markerHeaders(m *Marker) []schemas.Header {
	source := &r.route.Source
	values := map[string][]byte{
		schemas.HeaderOp: []byte(m.Op.String()),
		HeaderLSN:        appendHex(nil, uint64(m.At.Commit), 16),
		HeaderSeq:        appendHex(nil, uint64(m.At.Ordinal), 8),
		HeaderSystem:     appendUint(nil, source.SystemIdentifier),
		HeaderDatabase:   appendUint(nil, uint64(source.DatabaseOID)),
		HeaderHistory:    appendUint(nil, uint64(m.At.History)),
		HeaderTimeline:   appendUint(nil, uint64(m.At.Timeline)),
		HeaderSchema:     appendUint(nil, EventSchema),
		HeaderCascade:    []byte("false"),
	}
	headers := make([]schemas.Header, len(headerNames))
	for i, name := range headerNames {
		headers[i] = schemas.Header{Key: name, Value: append([]byte{}, values[name]...)}
	}
	return headers
}

// MarkerContent is the record of a marker.
type MarkerContent struct {
	Marker    *Marker    // the record does not have its position
	Heartbeat *Heartbeat // that showed it; nil if none did, or if another record of the transaction has it
	Ancestry  replication.Ancestry
}

// Kind is KindGap or KindRewind.
func (c *MarkerContent) Kind() Kind {
	if c.Marker.Op == Rewind {
		return KindRewind
	}
	return KindGap
}
func (c *MarkerContent) written() time.Time { return c.Marker.Time }
func (c *MarkerContent) read() (*Heartbeat, replication.Ancestry) {
	return c.Heartbeat, c.Ancestry
}

func (c *MarkerContent) append(b []byte, form TextForm) []byte {
	b = appendInstant(append(b, `,"at":`...), c.Marker.Time)
	b = appendMarker(append(b, ','), c.Marker)
	if c.Heartbeat != nil {
		b = appendHeartbeat(append(b, `,"heartbeat":`...), c.Heartbeat, form)
	}
	return appendAncestry(b, c.Ancestry)
}

func (c *MarkerContent) parse(record []byte, form TextForm) (err error) {
	var j struct {
		At        time.Time      `json:"at"`
		Reason    Reason         `json:"reason"`
		Topic     string         `json:"topic"`
		From      Reach          `json:"from"`
		To        Reach          `json:"to"`
		Heartbeat *heartbeatJSON `json:"heartbeat"`
		Ancestry  ancestryJSON   `json:"ancestry"`
	}
	if err = json.Unmarshal(record, &j); err != nil {
		return err
	}
	m := c.Marker
	m.Reason, m.Time, m.From, m.To, m.Topic = j.Reason, j.At, j.From, j.To, j.Topic
	c.Heartbeat = j.Heartbeat.heartbeat(form)
	c.Ancestry, err = j.Ancestry.ancestry()
	return err
}
