package tree

import (
	"crypto/sha256"
	"fmt"
	"strconv"

	"golang.org/x/mod/sumdb/tlog"

	"lapse/schemas"
)

// The headers of a leaf's record.
const (
	HeaderLeaf = "lapse-leaf" // the index, in decimal
	HeaderLink = "lapse-link" // the link, linkSize bytes
)

// maxEntry is the longest entry, in bytes, that tlog-tiles allows.
const maxEntry = 65535

// Entry returns what stands for a record in the tree: its value or, if that is longer than maxEntry, a text with the value's hash.
func Entry(value []byte) []byte {
	if len(value) <= maxEntry {
		return value
	}
	return fmt.Appendf(nil, `{"kind":"long","length":%d,"sha256":"%x"}`, len(value), sha256.Sum256(value))
}

// Leaf is a record's place in the tree.
type Leaf struct {
	Index int64
	hash  tlog.Hash
	link  link
	key   *Key // the log's key from the next leaf on

	handed string // the public key from there on, if its private key is not available
}

// AppendHeaders appends a leaf's headers to a record's.
func (l *Leaf) AppendHeaders(to []schemas.Header) []schemas.Header {
	values := make([]byte, 0, linkSize+20) // one allocation for both: every transaction makes a leaf
	values = append(values, l.link[:]...)
	values = strconv.AppendInt(values, l.Index, 10)
	return append(to, schemas.Header{Key: HeaderLeaf, Value: values[linkSize:]}, schemas.Header{Key: HeaderLink, Value: values[:linkSize]})
}

// IndexOf reads a record's index; ok is false if the record has none.
func IndexOf(r *schemas.Record) (index int64, ok bool) {
	index, err := strconv.ParseInt(r.Header(HeaderLeaf), 10, 64)
	return index, err == nil && index >= 0
}
