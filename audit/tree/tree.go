package tree

import (
	"cmp"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"

	"lapse/schemas"
)

// Tree is the log's tree while it grows. Its memory does not grow with it. It is for one goroutine.
type Tree struct {
	key   *Key // that the log is under; nil: it is not at hand
	ring  *Key // the newest
	edge  edge
	link  link
	spans []*Span

	newest tlog.Hash // of the leaf that was added last
	handed string    // see HandedTo
}

// New is the empty tree of a log. For somebody who has no key, key is nil: the leaves have no links then, and it goes by their indexes.
func New(key *Key) *Tree { return &Tree{key: key, ring: key} }

// Within is a tree that has so many leaves, for somebody without a key who tells the leaves after them from other records. Its root means
// nothing.
func Within(size int64) *Tree {
	return &Tree{edge: edge{size, make([]tlog.Hash, bits.OnesCount64(uint64(size)))}}
}

// Size is how many leaves it has.
func (t *Tree) Size() int64 { return t.edge.size }

// Next is the leaf that a record with this value would be. The tree does not have it before Add.
func (t *Tree) Next(value []byte) Leaf {
	hash := tlog.RecordHash(Entry(value))
	l := Leaf{Index: t.edge.size, hash: hash}
	if t.key == nil {
		return l
	}
	if l.Index == 0 {
		if first := t.ring.of(originKey(value)); first != nil {
			t.key = first
		}
	}
	l.link, l.key = t.key.next(t.link, l.Index, hash), t.key
	if r, err := rotationIn(value); err == nil && r != nil && r.former == t.key.public {
		if next := t.ring.of(r.next); next != nil {
			l.key = next
		} else {
			l.handed = r.next
		}
	}
	return l
}

// Add appends what Next returned.
func (t *Tree) Add(l Leaf) {
	t.edge.add(l.hash, t.spans...)
	t.link, t.newest, t.key = l.link, l.hash, l.key
	t.handed = cmp.Or(t.handed, l.handed)
}

// HandedTo is the public key that the log was handed over to, where that key is not at hand: nothing may follow by the key that was. Else it
// is empty.
func (t *Tree) HandedTo() string { return t.handed }

// Follows adds a record of the topic if it is the next leaf of this very chain, and reports whether it is.
func (t *Tree) Follows(r *schemas.Record) bool {
	if index, ok := IndexOf(r); !ok || index != t.edge.size {
		return false
	}
	l := t.Next(r.Value)
	if t.key != nil && !equalMACs(l.link[:], []byte(r.Header(HeaderLink))) {
		return false
	}
	t.Add(l)
	return true
}
