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

// Kind is the kind of a log record.
type Kind string

// The kinds of log records. Later versions may add more; readers skip unknown ones.
const (
	KindOrigin      Kind = "origin"      // first: the slot, its beginning, the keys
	KindRoute       Kind = "route"       // how events become records from here on
	KindTransaction Kind = "transaction" // what one transaction claimed, and what was seen of it
	KindCoverage    Kind = "coverage"    // everything up to here was read, and there was nothing else
	KindGap         Kind = "gap"         // deletions between two positions were not read
	KindRewind      Kind = "rewind"      // what the log has above a position never happened in the database with which it continues
	KindDrop        Kind = "drop"        // a partition that a policy dropped whole
	KindPolicy      Kind = "policy"      // a row that says which policies there are, and which of them delete
	KindHold        Kind = "hold"        // a row about a legal hold
	KindSnapshot    Kind = "snapshot"    // how much was due under a policy, in one snapshot
	KindQuarantine  Kind = "quarantine"  // how many rows entered and left the quarantine
)

// Content is the part of a log record that differs by kind. Each kind of record is one type, in the file that writes and parses it:
// origin.go, routerecord.go, transaction.go, coverage.go, tables.go, markerrecord.go, drop.go, policyrecord.go, holdrecord.go, quarantinerecord.go,
// snapshotrecord.go.
type Content interface {
	// Kind returns the kind.
	Kind() Kind
	// written is the record's timestamp in Kafka. It is not part of the record of an origin or a route.
	written() time.Time
	// read returns the last heartbeat that the record covers, nil if it is that of the record before, and the timelines that the server had left.
	read() (*Heartbeat, replication.Ancestry)
	// append writes the members of a JSON object, each with a comma before it.
	append(b []byte, form TextForm) []byte
	// parse reads from a record what append writes, and ignores the rest. What a former version did not write stays zero.
	parse(record []byte, form TextForm) error
}

// Entry is one record on its way to the log. Its value depends only on the WAL and the route, except for the instants of a coverage record.
type Entry struct {
	Kind     Kind
	Position LogPosition
	More     bool      // the transaction has another record after it
	Patient  bool      // only the slot waits for it
	Time     time.Time // Kafka's timestamp; no part of the record
	Value    []byte
}

// LogWriter writes the records of the log. It is not safe for concurrent use.
type LogWriter struct {
	route   *Route
	hashKey schemas.Key // the key that the route names; nil if it is not configured
	form    TextForm
	head    []byte   // the part that is the same in every record
	headers struct { // the same in every record's headers
		system, database, schema []byte
	}

	nonce uuid.UUID  // of the history in force
	beat  *Heartbeat // the last one that was read; nil for none
}

// NewLogWriter makes a writer for the history with this nonce. hashKey is the key that the route names; beat is the last heartbeat in the
// log, nil for none.
func NewLogWriter(route *Route, hashKey schemas.Key, nonce uuid.UUID, beat *Heartbeat) *LogWriter {
	w := &LogWriter{form: TextFormOf(route.Source.Encoding), nonce: nonce, beat: beat}
	w.SetRoute(route, hashKey)
	return w
}

// SetRoute sets the route of the following records, in the same log.
func (w *LogWriter) SetRoute(route *Route, hashKey schemas.Key) {
	w.route, w.hashKey = route, hashKey
	w.head = appendSource(append(w.head[:0], ','), &route.Source, w.form)
	w.head = appendUint(append(w.head, `,"route_version":`...), uint64(route.Version))
	w.head = appendText(append(w.head, `,"route":`...), route.Fingerprint(), UTF8Text)
	w.headers.system = appendUint(nil, route.Source.SystemIdentifier)
	w.headers.database = appendUint(nil, uint64(route.Source.DatabaseOID))
	w.headers.schema = appendUint(nil, LogSchema)
}

// Write makes the record of c at a position. more: the same transaction has another record after it, and the log reaches its position only
// with the last one.
//
// A restart finds the log's end by the beginning of a record. The heartbeat that it names is the last one that was read, which shows the
// record's time and the copy of the database.
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

// Record is the entry for the topic. It has no key, so a compacted topic, which would remove records, refuses it. Its
// position is in headers too, which takes three bytes of the disk a transaction: consumers filter by them, as in the other topics.
func (w *LogWriter) Record(e *Entry) schemas.Record {
	const placed = 2                    // further headers of a record with a place in the log's tree
	values := make([]byte, 0, 24+24+20) // of those that differ
	value := func(b []byte) []byte {
		from := len(values)
		values = b
		return b[from:len(b):len(b)]
	}
	headers := [...]schemas.Header{
		{Key: schemas.HeaderOp, Value: value(append(values, e.Kind...))},
		{Key: HeaderLSN, Value: value(appendHex(values, uint64(e.Position.LSN), 16))},
		{Key: HeaderSeq, Value: value(appendHex(values, uint64(e.Position.Seq), 8))},
		{Key: HeaderSystem, Value: w.headers.system},
		{Key: HeaderDatabase, Value: w.headers.database},
		{Key: HeaderHistory, Value: value(appendUint(values, uint64(e.Position.History)))},
		{Key: HeaderTimeline, Value: value(appendUint(values, uint64(e.Position.Timeline)))},
		{Key: HeaderSchema, Value: w.headers.schema},
	}
	all := append(make([]schemas.Header, 0, len(headers)+placed), headers[:]...)
	return schemas.Record{Topic: w.route.Log.Name, Value: e.Value, Time: e.Time, Headers: all}
}

// FenceHeaders name a fence's process, database and timeline.
func FenceHeaders(source *Source, timeline schemas.Timeline, process string) []schemas.Header {
	return []schemas.Header{
		{Key: HeaderProcess, Value: []byte(process)},
		{Key: HeaderSystem, Value: appendUint(nil, source.SystemIdentifier)},
		{Key: HeaderDatabase, Value: appendUint(nil, uint64(source.DatabaseOID))},
		{Key: HeaderTimeline, Value: appendUint(nil, uint64(timeline))},
		{Key: HeaderSchema, Value: appendUint(nil, EventSchema)},
	}
}

// MaxRecord is the size above which a log record is divided, if its content can be, in bytes: the limit of tlog-tiles for an entry.
const MaxRecord = 65535

// maxLines is the largest number of relations that a record names, fewer if their names are long. One transaction may delete from thousands
// of partitions.
const maxLines = 256

// divisible is a content that may be too long for one record.
type divisible interface {
	halves() (first, second Content) // nil if it has one line
}

// WriteAll makes the records of one transaction. It divides a content that is too long for one record.
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
