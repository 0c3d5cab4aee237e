package evidence

import (
	"encoding/base64"

	"lapse/schemas"
)

// RowsRoot is what a transaction's record says of its events one by one: the root of a Merkle tree (RFC 6962) over a commitment to each,
// in the order of their ordinals. Package rows makes them.
type RowsRoot struct {
	Epoch schemas.Epoch `json:"epoch"` // the month that the transaction commits in, whose key the commitments are salted with
	Count uint64        `json:"count"` // of events; what goes to every partition is one
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

// AppendIdentity writes what names an event's row as canonical JSON, whatever the format of events: its columns in the table's order, each
// value as text. It is {} where the event names no row.
func AppendIdentity(dst []byte, keys []Key, form TextForm) []byte { return appendKeys(dst, keys, form) }

// AppendPlain writes a name as headers have it: UTF-8, in a database of any encoding.
func AppendPlain(dst []byte, name string, form TextForm) []byte { return appendPlain(dst, name, form) }
