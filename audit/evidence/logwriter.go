package evidence

import (
	"slices"
	"time"

	"github.com/google/uuid"

	"lapse/replication"
	"lapse/schemas"
)

// LogSchema is the version of the log records' format.
const LogSchema = 1

// Kind says what a record of the log is about.
type Kind string

// The kinds of log records there are. Others follow; a reader passes over what it does not know.
const (
	KindOrigin      Kind = "origin"      // first: the slot, its beginning, the keys
	KindRoute       Kind = "route"       // how events become records from here on
	KindTransaction Kind = "transaction" // what one transaction claimed, and what was seen of it
	KindCoverage    Kind = "coverage"    // everything up to here has been read, and there was nothing else
	KindGap         Kind = "gap"         // what was deleted between two positions nobody has read
	KindRewind      Kind = "rewind"      // what the log has above a position never happened in the database it goes on with
	KindDrop        Kind = "drop"        // a partition that a policy dropped whole
	KindPolicy      Kind = "policy"      // a row that says which policies there are, and which of them delete
	KindHold        Kind = "hold"        // a row about a legal hold
	KindSnapshot    Kind = "snapshot"    // how much was due under a policy, in one snapshot
	KindQuarantine  Kind = "quarantine"  // how many rows came into the quarantine, and left it
)

// Content is what one record of the log says beyond what all records say. Each kind of record is one type, in the file that
// writes it and reads it back: origin.go, route.go, transaction.go, coverage.go, tables.go, marker.go, drop.go,
// policyrecord.go, holdrecord.go, quarantinerecord.go,
// snapshotrecord.go.
type Content interface {
	// Kind names it.
	Kind() Kind
	// written is the record's timestamp in Kafka. Of an origin and of a route it is no part of the record.
	written() time.Time
	// read is the last heartbeat that the record covers, nil if it is that of the record before, and the timelines that the
	// server had left.
	read() (*Heartbeat, replication.Ancestry)
	// append writes the members of a JSON object, each with a comma before it.
	append(b []byte, form TextForm) []byte
	// parse reads what append writes out of a record, and passes over the rest. What a former version did not write stays zero.
	parse(record []byte, form TextForm) error
}

// Entry is one record of the log on its way there. Its value is a function of the WAL and the route alone, but for what a
// coverage record says of instants.
type Entry struct {
	Kind     Kind
	Position LogPosition
	More     bool      // the transaction has another record after it
	Patient  bool      // nobody but the slot waits for it
	Time     time.Time // Kafka's timestamp; no part of the record
	Value    []byte
}

// LogWriter writes the records of the log. It is not safe for concurrent use.
type LogWriter struct {
	route   *Route
	hashKey schemas.Key // that the route names; nil where it is not there
	form    TextForm
	head    []byte // what is the same in every record

	nonce uuid.UUID  // of the history in force
	beat  *Heartbeat // the last one that was read; nil for none
}

// NewLogWriter makes a writer for the history with this nonce. hashKey is the one that the route names; beat is the last heartbeat that the
// log has, nil for none.
func NewLogWriter(route *Route, hashKey schemas.Key, nonce uuid.UUID, beat *Heartbeat) *LogWriter {
	w := &LogWriter{form: TextFormOf(route.Source.Encoding), nonce: nonce, beat: beat}
	w.SetRoute(route, hashKey)
	return w
}

// SetRoute has the records from here on be of another route of the same log.
func (w *LogWriter) SetRoute(route *Route, hashKey schemas.Key) {
	w.route, w.hashKey = route, hashKey
	w.head = appendSource(append(w.head[:0], ','), &route.Source, w.form)
	w.head = appendUint(append(w.head, `,"route_version":`...), uint64(route.Version))
	w.head = appendText(append(w.head, `,"route":`...), route.Fingerprint(), UTF8Text)
}

// Write makes the record of c at a position. more says that the same transaction has another record after it: until its
// last one is in the log, what the transaction reaches is not.
//
// What every record begins with is what a restart knows the log's end by. The heartbeat that it names is the last one
// that was read, which places the record in time and in one copy of the database.
func (w *LogWriter) Write(c Content, at LogPosition, more bool) *Entry {
	if h, _ := c.read(); h != nil {
		w.beat = h
	}
	if s, is := c.(interface{ seal(key schemas.Key) }); is {
		s.seal(w.hashKey)
	}
	b := make([]byte, 0, 1024)
	b = append(append(append(b, `{"kind":"`...), c.Kind()...), `","schema":`...)
	b = append(appendUint(b, LogSchema), w.head...)
	b = appendUint(append(b, `,"history":`...), uint64(at.History))
	b = appendUUID(append(b, `,"nonce":`...), w.nonce)
	b = appendUint(append(b, `,"timeline":`...), uint64(at.Timeline))
	b = appendLSN(append(b, `,"reached":`...), at.LSN)
	b = appendUint(append(b, `,"seq":`...), uint64(at.Seq))
	if more {
		b = append(b, `,"more":true`...)
	}
	if w.beat != nil {
		b = appendUUID(append(b, `,"beat":`...), w.beat.Nonce)
	}
	t, ok := c.(*TransactionContent)
	return &Entry{
		Kind: c.Kind(), Position: at, More: more, Patient: ok && t.Verdict == Unclaimed && !more,
		Time: c.written(), Value: append(c.append(b, w.form), '}'),
	}
}

// Record is the entry as it goes into the topic. It has no key: a compacted topic, which would throw records away, refuses
// it.
func (w *LogWriter) Record(e *Entry) schemas.Record {
	const placed = 2 // more headers, which a record with a place in the log's tree has
	headers := [...]schemas.Header{
		{Key: schemas.HeaderOp, Value: []byte(e.Kind)},
		{Key: HeaderLSN, Value: appendHex(nil, uint64(e.Position.LSN), 16)},
		{Key: HeaderSeq, Value: appendHex(nil, uint64(e.Position.Seq), 8)},
		{Key: HeaderSystem, Value: appendUint(nil, w.route.Source.SystemIdentifier)},
		{Key: HeaderDatabase, Value: appendUint(nil, uint64(w.route.Source.DatabaseOID))},
		{Key: HeaderHistory, Value: appendUint(nil, uint64(e.Position.History))},
		{Key: HeaderTimeline, Value: appendUint(nil, uint64(e.Position.Timeline))},
		{Key: HeaderSchema, Value: appendUint(nil, LogSchema)},
	}
	all := append(make([]schemas.Header, 0, len(headers)+placed), headers[:]...)
	return schemas.Record{Topic: w.route.Log.Name, Value: e.Value, Time: e.Time, Headers: all}
}

// FenceHeaders name a fence's writer, database and timeline.
func FenceHeaders(source *Source, timeline schemas.Timeline, process string) []schemas.Header {
	return []schemas.Header{
		{Key: HeaderProcess, Value: []byte(process)},
		{Key: HeaderSystem, Value: appendUint(nil, source.SystemIdentifier)},
		{Key: HeaderDatabase, Value: appendUint(nil, uint64(source.DatabaseOID))},
		{Key: HeaderTimeline, Value: appendUint(nil, uint64(timeline))},
		{Key: HeaderSchema, Value: appendUint(nil, EventSchema)},
	}
}

// MaxRecord is how many bytes a record of the log has at most: as many as tlog-tiles takes for an entry.
const MaxRecord = 65535

// maxLines is how many relations a record names at most, and fewer where their names are long. One transaction may delete from
// thousands of partitions.
const maxLines = 256

// divisible is a content that may be too long for one record.
type divisible interface {
	halves() (first, second Content) // nil if it has one line
}

// WriteAll makes the records of what one transaction comes to. What is too long for one record is divided among several.
func (w *LogWriter) WriteAll(contents []Content, at Reach) (all []*Entry) {
	for i := 0; i < len(contents); i++ {
		e := w.Write(contents[i], LogPosition{Reach: at, Seq: uint32(i)}, i < len(contents)-1)
		if d, is := contents[i].(divisible); is && len(e.Value) > MaxRecord {
			if first, second := d.halves(); first != nil {
				contents = slices.Concat(contents[:i], []Content{first, second}, contents[i+1:])
				i--
				continue
			}
		}
		all = append(all, e)
	}
	return all
}
