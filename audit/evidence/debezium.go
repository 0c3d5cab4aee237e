package evidence

import (
	"time"

	"lapse/schemas"
)

// debeziumVersion is what source.version says. The version of the program is in no event: the same WAL gives the same bytes.
const debeziumVersion = "lapse-1"

// debeziumFormat follows what Debezium's connector for PostgreSQL writes with JSON converters without schema: the same members
// in the same order, with a lapse block after them. debeziumvalue.go says how values are written, and the tests compare them
// with what was recorded from Debezium itself. What differs:
//
//   - before has what names the row, then what the policy wants told, and nothing else. Debezium makes up a value for every column that it was not sent and that
//     cannot be null.
//   - ts_ms, ts_us and ts_ns at the top are the commit's, as those of source are: no clock is read.
//   - source.lsn is the commit's, and source.sequence the commit's and the ordinal, which strictly increase. Those of a change are
//     not in the order of the events.
//   - A gap or rewind is a message (op m) whose prefix says which.
//   - The key's columns are in the table's order, and a truncate has the key {}.
//   - A row that an update moved to another partition is an update: before has what named it, after what names it; source names the
//     partition that it left. Debezium writes a delete and a create.
//   - A partition that a policy drops is a truncate of the partition, and the lapse block has the number of its rows.
type debeziumFormat struct {
	source *Source
	form   TextForm
	values typedValues
	frame  [3][]byte // see Alike
	op     Op        // of the events that Alike was called for
}

func newDebeziumFormat(source *Source) Format {
	form := TextFormOf(source.Encoding)
	return &debeziumFormat{source: source, form: form, values: typedValues{form: form}}
}

// Alike writes what the events have in common:
//
//	0 {"before": row 1 ,…"source":{…"sequence":"[… ordinal 2 …},…"lapse":{…"ordinal": ordinal
func (f *debeziumFormat) Alike(e *Event) {
	op := `"d"`
	f.op, f.frame[0], f.frame[1] = e.Op, append(f.frame[0][:0], `{"before":`...), f.frame[1][:0]
	switch e.Op {
	case SoftDelete: // the row stays
		op, f.frame[0] = `"u"`, append(f.frame[0], `null,"after":`...)
	case Move:
		op = `"u"`
	case Truncate, Drop:
		op = `"t"`
		fallthrough
	default:
		f.frame[1] = append(f.frame[1], `,"after":null`...)
	}
	at := debeziumPlace{time: e.Tx.CommitTime, commit: e.Tx.CommitLSN, xid: e.Tx.XID, origin: e.Tx.Origin}
	if e.Cause != User {
		at.origin = ""
	}
	if e.Relation != nil {
		at.schema, at.table = e.Relation.Schema, e.Relation.Name
	}
	f.frame[1] = f.appendSource(append(f.frame[1], ','), &at)
	b := append(f.appendRest(f.frame[2][:0], &at), `,"transaction":null,"op":`...)
	b = appendTimes(append(append(b, op...), ','), at.time)
	f.frame[2] = append(appendLapse(b, e, f.source, f.form), `,"ordinal":`...)
}

// AppendKeys writes values by their types.
func (f *debeziumFormat) AppendKeys(dst []byte, keys []Key) []byte {
	dst = append(dst, '{')
	for i := range keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendText(dst, keys[i].Name, f.form), ':')
		if keys[i].Null {
			dst = append(dst, "null"...)
		} else {
			dst = f.values.append(dst, keys[i].Value, keys[i].Column)
		}
	}
	return append(dst, '}')
}

// AppendEvent puts row and ordinal into the frame. A row that the server did not name is null.
func (f *debeziumFormat) AppendEvent(dst []byte, e *Event, keys *EventKeys) []byte {
	dst = append(dst, f.frame[0]...)
	if len(keys.Columns) > 0 {
		dst = append(dst, keys.JSON...)
	} else {
		dst = append(dst, "null"...)
	}
	switch values := keys.Values.JSON; {
	case f.op == Move:
		dst = append(append(dst, `,"after":`...), values...)
	case len(values) > 0:
		dst = append(append(dst[:len(dst)-1], ','), values[1:]...) // one object of both
	}
	dst = appendUint(append(dst, f.frame[1]...), uint64(e.Ordinal))
	dst = appendUint(append(dst, f.frame[2]...), uint64(e.Ordinal))
	return append(appendHashed(appendJudged(dst, e), keys, f.form), '}', '}')
}

// AppendMarker writes a marker in the order in which Debezium writes a message.
func (f *debeziumFormat) AppendMarker(dst []byte, m *Marker) []byte {
	at := debeziumPlace{time: m.Time, commit: m.At.Commit}
	b := appendInt(append(dst, `{"op":"m","ts_ms":`...), m.Time.UnixMilli())
	b = appendUint(f.appendSource(append(b, ','), &at), uint64(m.At.Ordinal))
	b = append(f.appendRest(b, &at), `,"transaction":null,"message":{"prefix":"lapse-`...)
	b = append(append(b, m.Op.String()...), `","content":""}`...)
	return append(appendMarkerLapse(b, m, f.source, f.form), '}')
}

// AppendHeaders adds nothing.
func (f *debeziumFormat) AppendHeaders(dst []schemas.Header) []schemas.Header { return dst }

// debeziumPlace is what source says beyond the database.
type debeziumPlace struct {
	time          time.Time
	commit        schemas.LSN
	xid           uint32 // 0: none
	origin        string
	schema, table string
}

// appendSource writes the source up to the ordinal in sequence.
func (f *debeziumFormat) appendSource(b []byte, at *debeziumPlace) []byte {
	b = append(b, `"source":{"version":"`+debeziumVersion+`","connector":"postgresql","name":`...)
	b = appendText(b, f.source.Slot, UTF8Text)
	b = appendInt(append(b, `,"ts_ms":`...), at.time.UnixMilli())
	b = appendText(append(b, `,"snapshot":"false","db":`...), f.source.Database, f.form)
	b = appendUint(append(b, `,"sequence":"[\"`...), uint64(at.commit))
	return append(b, `\",\"`...)
}

// appendRest writes the source from after the ordinal on.
func (f *debeziumFormat) appendRest(b []byte, at *debeziumPlace) []byte {
	b = appendInt(append(b, `\"]","ts_us":`...), at.time.UnixMicro())
	b = appendNanos(append(b, `,"ts_ns":`...), at.time)
	b = appendText(append(b, `,"schema":`...), at.schema, f.form)
	b = append(appendText(append(b, `,"table":`...), at.table, f.form), `,"txId":`...)
	if at.xid == 0 {
		b = append(b, "null"...)
	} else {
		b = appendUint(b, uint64(at.xid))
	}
	b = append(appendUint(append(b, `,"lsn":`...), uint64(at.commit)), `,"xmin":null,"origin":`...)
	if at.origin == "" {
		b = append(b, "null"...)
	} else {
		b = appendText(b, at.origin, f.form)
	}
	return append(b, `,"origin_lsn":null}`...)
}

// appendTimes writes an instant in the three units that Debezium has.
func appendTimes(b []byte, at time.Time) []byte {
	b = appendInt(append(b, `"ts_ms":`...), at.UnixMilli())
	b = appendInt(append(b, `,"ts_us":`...), at.UnixMicro())
	return appendNanos(append(b, `,"ts_ns":`...), at)
}

// appendNanos writes nanoseconds. They do not fit 64 bits, and an instant has whole microseconds.
func appendNanos(b []byte, at time.Time) []byte {
	micros := at.UnixMicro()
	if micros == 0 {
		return append(b, '0')
	}
	return append(appendInt(b, micros), "000"...)
}
