package evidence

import (
	"encoding/base64"

	"lapse/schemas"
)

// RowsRoot covers a transaction's events one by one: the root of a Merkle tree (RFC 6962) over a commitment to each, in the order of their
// ordinals. Package rows makes them.
type RowsRoot struct {
	Epoch schemas.Epoch `json:"epoch"` // the month of the commit, whose key salts the commitments
	Count uint64        `json:"count"` // number of events; one that goes to every partition counts once
	First uint32        `json:"first"` // ordinal of the first event
	Root  []byte        `json:"root"`
}

func (r *RowsRoot) append(b []byte) []byte {
	b = appendText(append(b, `,"rows":{"epoch":`...), string(r.Epoch), UTF8Text)
	b = appendUint(append(b, `,"count":`...), r.Count)
	b = appendUint(append(b, `,"first":`...), uint64(r.First))
	b = base64.StdEncoding.AppendEncode(append(b, `,"root":"`...), r.Root)
	return append(b, `"}`...)
}

// AppendIdentity writes an event's row key as canonical JSON, whatever the format of events: its columns in the table's order, each value
// as text. It is {} if the event names no row.
func AppendIdentity(dst []byte, keys []Key, form TextForm) []byte { return appendKeys(dst, keys, form) }

// AppendPlain writes a name in the form of headers: UTF-8, for a database of any encoding.
func AppendPlain(dst []byte, name string, form TextForm) []byte { return appendPlain(dst, name, form) }
