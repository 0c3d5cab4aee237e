package evidence

import (
	"bytes"

	"github.com/google/uuid"

	"lapse/replication"
	"lapse/schemas"
)

// Routed is an event as sent to Kafka: the same record into each of Partitions. The router owns it; it is valid until the next call.
type Routed struct {
	Topic      string
	Partitions []int32
	Key, Value []byte
	Headers    []schemas.Header
}

// Router turns events into records. Its output depends only on the event and the route. It keeps buffers, so that an event costs no memory,
// and what successive events have in common. It is not safe for concurrent use.
type Router struct {
	route  *Route
	form   TextForm
	hasher *keyHasher
	values *keyHasher // of values, which are next to keys

	routed Routed
	one    [1]int32
	every  []int32 // partitions of either topic, as many as the larger one ever had

	like    likeness // of the events that format and headers were prepared for
	format  Format
	keys    EventKeys
	headers []byte
	seq     []byte
}

// likeness is what events must have in common to share a format's preparation, and headers. Events of one transaction with the same batch
// have the same claim.
type likeness struct {
	tx       replication.Tx
	op       Op
	cause    Cause
	cascade  bool
	options  [2]bool
	values   bool
	batch    uuid.UUID
	tableOID uint32
	table    string
	root     string
	part     bool
	movedTo  string
}

func likenessOf(e *Event) likeness {
	l := likeness{
		tx: *e.Tx, op: e.Op, cause: e.Cause, cascade: e.Cascade, tableOID: e.TableOID, table: e.Table, root: e.Root, part: e.Partition, movedTo: e.MovedTo,
		options: [2]bool{e.TruncateCascade, e.RestartIdentity}, values: len(e.Values) > 0,
	}
	if e.Claim != nil {
		l.batch = e.Claim.Batch
	}
	return l
}

// NewRouter makes a router for a valid route and the key that it names.
func NewRouter(route *Route, key schemas.Key) *Router {
	r := &Router{
		route: route, form: TextFormOf(route.Source.Encoding), hasher: newKeyHasher(key), values: newKeyHasher(key),
		format: formats[route.Format](&route.Source),
	}
	for p := range max(route.System.All(), route.User.All()) {
		r.every = append(r.every, p)
	}
	r.routed.Headers = make([]schemas.Header, len(headerNames))
	for i, name := range headerNames {
		r.routed.Headers[i].Key = name
	}
	return r
}

// Route decides where an event goes, and its bytes. A system delete goes to the system topic, everything else to the user topic. A row's
// events all go to one partition, by its key. A truncate or a drop, which names no row, goes to every partition that the log's routes have
// used, so that it is in the right place among the deletes of any row.
func (r *Router) Route(e *Event) *Routed {
	if like := likenessOf(e); like != r.like {
		r.like = like
		r.format.Alike(e)
		r.buildHeaders(e)
	}
	out, keys := &r.routed, &r.keys
	r.writeKeys(e)
	out.Key, out.Value = keys.JSON, r.format.AppendEvent(out.Value[:0], e, keys)
	r.seq = appendHex(r.seq[:0], uint64(e.Ordinal), 8)
	out.Headers = out.Headers[:len(headerNames)]
	out.Headers[headerSeqAt].Value = r.seq
	out.Headers = r.format.AppendHeaders(out.Headers)
	topic := &r.route.User
	if e.Cause == System {
		topic = &r.route.System
	}
	out.Topic = topic.Name
	if e.Op == Truncate || e.Op == Drop {
		out.Partitions = r.every[:topic.All()]
		return out
	}
	r.one[0] = partition(out.Key, int(topic.Partitions))
	out.Partitions = r.one[:]
	return out
}

// writeKeys writes the row's key, and the values in addition, with hashes for values that must not be shown or are too long.
func (r *Router) writeKeys(e *Event) {
	keys, values := &r.keys, &r.keys.Values
	keys.Columns, keys.Hashed, keys.Sizes = e.Keys, nil, nil
	values.Columns, values.Hashed, values.Sizes, values.JSON = e.Values, nil, nil, values.JSON[:0]
	if e.Hashed {
		keys.Columns, keys.Hashed = r.hasher.shorten(keys.Columns, -1)
	}
	if keys.JSON = r.format.AppendKeys(keys.JSON[:0], keys.Columns); len(keys.JSON) > maxKeys {
		keys.Columns, keys.Hashed = r.hasher.shorten(keys.Columns, maxKeyValue)
		keys.Sizes = r.hasher.sizes
		keys.JSON = r.format.AppendKeys(keys.JSON[:0], keys.Columns)
	}
	if len(e.Values) == 0 {
		return
	}
	if values.JSON = r.format.AppendKeys(values.JSON, values.Columns); len(values.JSON) > maxKeys {
		values.Columns, values.Hashed = r.values.shorten(values.Columns, maxKeyValue)
		values.Sizes = r.values.sizes
		values.JSON = r.format.AppendKeys(values.JSON[:0], values.Columns)
	}
}

// buildHeaders writes every header's value into one buffer and slices it.
func (r *Router) buildHeaders(e *Event) {
	b := r.headers[:0]
	var ends [len(headerNames)]int
	for i, name := range headerNames {
		b = r.appendHeader(b, name, e)
		ends[i] = len(b)
	}
	start := 0
	for i, end := range ends {
		r.routed.Headers[i].Value = b[start:end:end]
		start = end
	}
	r.headers = b
}

func (r *Router) appendHeader(dst []byte, name string, e *Event) []byte {
	switch name {
	case HeaderCause:
		return append(dst, e.Cause.String()...)
	case schemas.HeaderOp:
		return append(dst, e.Op.String()...)
	case HeaderPolicy:
		if e.Claim != nil {
			return append(dst, e.Claim.Policy...)
		}
		return dst
	case HeaderTable:
		return appendPlain(dst, e.Table, r.form)
	case HeaderRoot:
		if e.Partition {
			return appendPlain(dst, e.Root, r.form)
		}
		return dst
	case HeaderCascade:
		return appendBool(dst, e.Cascade)
	case HeaderRun:
		if e.Claim != nil {
			return appendUUIDText(dst, e.Claim.Run)
		}
		return dst
	case HeaderXID:
		return appendUint(dst, uint64(e.Tx.XID))
	case HeaderLSN:
		return appendHex(dst, uint64(e.Tx.CommitLSN), 16)
	case HeaderSystem:
		return appendUint(dst, r.route.Source.SystemIdentifier)
	case HeaderDatabase:
		return appendUint(dst, uint64(r.route.Source.DatabaseOID))
	case HeaderHistory:
		return appendUint(dst, uint64(e.Tx.History))
	case HeaderTimeline:
		return appendUint(dst, uint64(e.Tx.Timeline))
	case HeaderSchema:
		return appendUint(dst, EventSchema)
	default: // HeaderSeq, which Route writes
		return dst
	}
}

// markerKey is the key of markers, because a compacted topic accepts no record without one. A JSON string: the keys of events are JSON objects.
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
