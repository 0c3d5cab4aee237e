package evidence

import (
	"lapse/replication"
	"lapse/schemas"
)

// spannerFormat is the default format, which follows Spanner's data change record.
type spannerFormat struct {
	source *Source
	form   TextForm
	frame  frame
}

func newSpannerFormat(source *Source) Format {
	return &spannerFormat{source: source, form: TextFormOf(source.Encoding)}
}

// Alike writes what the events have in common.
func (f *spannerFormat) Alike(e *Event) { f.frame.build(e, f.source, f.form) }

// AppendKeys writes every value as text.
func (f *spannerFormat) AppendKeys(dst []byte, keys []Key) []byte {
	return appendKeys(dst, keys, f.form)
}

// AppendEvent puts the row's own part into the frame.
func (f *spannerFormat) AppendEvent(dst []byte, e *Event, keys *EventKeys) []byte {
	dst = f.frame.appendEvent(dst, e, keys)
	return append(appendHashed(dst, keys, f.form), '}', '}')
}

// AppendMarker writes a marker with the members of an event.
func (f *spannerFormat) AppendMarker(dst []byte, m *Marker) []byte {
	source := f.source
	b := append(dst, `{"event_id":"`...)
	b = appendEventID(b, source, m.At)
	b = appendInstant(append(b, `","commit_timestamp":`...), m.Time)
	b = appendHex(append(b, `,"record_sequence":"`...), uint64(m.At.Ordinal), 8)
	b = appendUint(append(b, `","server_transaction_id":"`...), source.SystemIdentifier)
	b = append(b, `/0","transaction_tag":"","is_system_transaction":false,"table_name":"","mod_type":"`...)
	if m.Op == Rewind {
		b = append(b, `REWIND`...)
	} else {
		b = append(b, `GAP`...)
	}
	b = append(b, `","value_capture_type":"KEYS","mods":[]`...)
	return append(appendMarkerLapse(b, m, source, f.form), '}')
}

// AppendHeaders adds nothing.
func (f *spannerFormat) AppendHeaders(dst []schemas.Header) []schemas.Header { return dst }

// appendMarkerLapse writes the block that is not Spanner's, of a marker.
func appendMarkerLapse(b []byte, m *Marker, source *Source, form TextForm) []byte {
	b = appendUint(append(b, `,"lapse":{"schema":`...), EventSchema)
	b = append(appendMarker(append(b, `,"cause":"",`...), m), ',')
	b = appendSource(b, source, form)
	b = appendUint(append(b, `,"history":`...), uint64(m.At.History))
	b = appendUint(append(b, `,"timeline":`...), uint64(m.At.Timeline))
	b = appendLSN(append(b, `,"commit_lsn":`...), m.At.Commit)
	return append(appendUint(append(b, `,"ordinal":`...), uint64(m.At.Ordinal)), '}')
}

// appendEventID writes the permanent id of an event or a marker.
func appendEventID(b []byte, source *Source, at replication.Position) []byte {
	b = append(appendUint(b, source.SystemIdentifier), '/')
	b = append(appendUint(b, uint64(source.DatabaseOID)), '/')
	b = append(appendUint(b, uint64(at.History)), '/')
	b = append(appendUint(b, uint64(at.Timeline)), '/')
	b = append(appendHex(b, uint64(at.Commit), 16), '/')
	return appendHex(b, uint64(at.Ordinal), 8)
}

// frame is an event without the parts that differ from row to row: the ordinal, three times, and the keys. One frame serves all events of a
// transaction with the same table and cause, which makes an event cheap.
//
//	0 {"event_id":"…/ ordinal  1 ","commit_timestamp":…,"record_sequence":" ordinal  2 ",…"mods":[{"keys": keys
//	,"old_values": values ,"new_values": values  3 }],…"lapse":{…,"ordinal": ordinal  …}}
type frame [4][]byte

// build writes the frame of an event and those like it.
func (f *frame) build(e *Event, source *Source, form TextForm) {
	b := append(f[0][:0], `{"event_id":"`...)
	b = append(appendUint(b, source.SystemIdentifier), '/')
	b = append(appendUint(b, uint64(source.DatabaseOID)), '/')
	b = append(appendUint(b, uint64(e.Tx.History)), '/')
	b = append(appendUint(b, uint64(e.Tx.Timeline)), '/')
	f[0] = append(appendHex(b, uint64(e.Tx.CommitLSN), 16), '/')

	b = appendInstant(append(f[1][:0], `","commit_timestamp":`...), e.Tx.CommitTime)
	f[1] = append(b, `,"record_sequence":"`...)

	b = appendUint(append(f[2][:0], `","server_transaction_id":"`...), source.SystemIdentifier)
	b = appendUint(append(b, '/'), uint64(e.Tx.XID))
	switch {
	case e.Op == Drop:
		b = append(b, `","transaction_tag":"PartitionDropPolicy","is_system_transaction":true`...)
	case e.Cause == System:
		b = append(b, `","transaction_tag":"RowDeletionPolicy","is_system_transaction":true`...)
	default:
		b = append(b, `","transaction_tag":"","is_system_transaction":false`...)
	}
	b = appendText(append(b, `,"table_name":`...), e.Table, form)
	capture := "KEYS"
	if e.Cause == System && len(e.Values) > 0 {
		capture = "COLUMNS"
	}
	b = append(append(append(b, `,"mod_type":"`...), modType(e.Op)...), `","value_capture_type":"`...)
	b = append(append(b, capture...), `","mods":[`...)
	if e.Op == Truncate || e.Op == Drop {
		f[2] = b
		b = append(f[3][:0], `]`...)
	} else {
		f[2] = append(b, `{"keys":`...)
		b = append(f[3][:0], `}]`...)
	}
	f[3] = append(appendLapse(b, e, source, form), `,"ordinal":`...)
}

// modType is Spanner's name of an operation.
func modType(op Op) string {
	switch op {
	case Truncate:
		return "TRUNCATE"
	case SoftDelete:
		return "UPDATE"
	case Drop:
		return "DROP"
	case Move:
		return "MOVE"
	default:
		return "DELETE"
	}
}

// noValues stands for values that are not shown.
var noValues = []byte("{}")

// appendEvent puts the row's own part into the frame, up to the notes about its keys. A truncate or a drop has none.
func (f *frame) appendEvent(dst []byte, e *Event, keys *EventKeys) []byte {
	dst = appendHex(append(dst, f[0]...), uint64(e.Ordinal), 8)
	dst = appendHex(append(dst, f[1]...), uint64(e.Ordinal), 8)
	dst = append(dst, f[2]...)
	if e.Op != Truncate && e.Op != Drop {
		before, after := keys.Values.JSON, noValues
		if e.Op == Move {
			before, after = noValues, keys.Values.JSON
		} else if len(before) == 0 {
			before = noValues
		}
		dst = append(append(append(dst, keys.JSON...), `,"old_values":`...), before...)
		dst = append(append(dst, `,"new_values":`...), after...)
	}
	return appendJudged(appendUint(append(dst, f[3]...), uint64(e.Ordinal)), e)
}

// appendJudged says why an event does not name its row, and whether the row was due, as far as the log shows it.
func appendJudged(dst []byte, e *Event) []byte {
	dst = append(dst, e.Due.member()...)
	switch {
	case e.Full:
		dst = append(dst, `,"identity":"full"`...)
	case e.Nameless:
		dst = append(dst, `,"identity":"none"`...)
	}
	return dst
}

// appendHashed names the columns with hashed values, if there are any, and the sizes of values that are too long.
func appendHashed(dst []byte, keys *EventKeys, form TextForm) []byte {
	begun := false
	name := func(columns []Key, hashed []int) {
		for _, column := range hashed {
			if !begun {
				dst, begun = append(dst, `,"hashed":[`...), true
			} else {
				dst = append(dst, ',')
			}
			dst = appendText(dst, columns[column].Name, form)
		}
	}
	name(keys.Columns, keys.Hashed)
	name(keys.Values.Columns, keys.Values.Hashed)
	if begun {
		dst = append(dst, ']')
	}
	if len(keys.Sizes)+len(keys.Values.Sizes) == 0 {
		return dst
	}
	dst = append(dst, `,"sizes":`...)
	before := byte('[')
	for _, sizes := range [...][]int{keys.Sizes, keys.Values.Sizes} {
		for _, size := range sizes {
			dst = appendUint(append(dst, before), uint64(size))
			before = ','
		}
	}
	return append(dst, ']')
}

// appendLapse writes the block that is not Spanner's, up to the ordinal.
func appendLapse(dst []byte, e *Event, source *Source, form TextForm) []byte {
	dst = append(dst, `,"lapse":{"schema":`...)
	dst = appendUint(dst, EventSchema)
	dst = append(dst, `,"cause":"`...)
	dst = append(append(dst, e.Cause.String()...), '"')
	if e.Cause == User && e.Tx.Origin != "" {
		dst = appendText(append(dst, `,"origin":`...), e.Tx.Origin, form)
	}
	if e.Claim != nil {
		dst = append(appendClaim(append(dst, ','), e.Claim, form), `,"cascade":`...)
		dst = appendBool(dst, e.Cascade)
	}
	if e.Op == Truncate {
		dst = appendBool(append(dst, `,"truncate_cascade":`...), e.TruncateCascade)
		dst = appendBool(append(dst, `,"restart_identity":`...), e.RestartIdentity)
	}
	if e.Root != "" {
		dst = appendText(append(dst, `,"root":`...), e.Root, form)
	}
	if e.MovedTo != "" {
		dst = appendText(append(dst, `,"moved_to":`...), e.MovedTo, form)
	}
	if e.Drop != nil {
		dst = appendDrop(append(dst, ','), e.Drop)
	}
	dst = appendUint(append(dst, `,"table_oid":`...), uint64(e.TableOID))
	dst = appendSource(append(dst, ','), source, form)
	dst = appendUint(append(dst, `,"history":`...), uint64(e.Tx.History))
	dst = appendUint(append(dst, `,"timeline":`...), uint64(e.Tx.Timeline))
	return appendLSN(append(dst, `,"commit_lsn":`...), e.Tx.CommitLSN)
}
