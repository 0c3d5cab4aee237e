package tree

import (
	"crypto/sha256"
	"fmt"
	"strconv"

	"golang.org/x/mod/sumdb/tlog"

	"lapse/schemas"
)

// The headers of a leaf.
const (
	HeaderLeaf = "lapse-leaf" // its index, in decimal
	HeaderLink = "lapse-link" // the chain up to and with it: linkSize bytes
)

// maxEntry is the longest entry of tlog-tiles, in bytes.
const maxEntry = 65535

// Entry is what represents a record in the tree: its value, or, where that is longer than an entry may be, a text that names its hash.
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
	key   *Key // that the log is under from the next leaf on

	handed string // the public key of another one that it is under from there on, which is not at hand
}

// AppendHeaders adds to a record's headers those that a leaf's has.
func (l *Leaf) AppendHeaders(to []schemas.Header) []schemas.Header {
	values := make([]byte, 0, linkSize+20) // of both: a leaf is made for every transaction
	values = append(values, l.link[:]...)
	values = strconv.AppendInt(values, l.Index, 10)
	return append(to, schemas.Header{Key: HeaderLeaf, Value: values[linkSize:]}, schemas.Header{Key: HeaderLink, Value: values[:linkSize]})
}

// IndexOf reads a record's index; ok is false for one that has none.
func IndexOf(r *schemas.Record) (index int64, ok bool) {
	index, err := strconv.ParseInt(r.Header(HeaderLeaf), 10, 64)
	return index, err == nil && index >= 0
}
