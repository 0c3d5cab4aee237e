package tree

import (
	"cmp"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"

	"lapse/schemas"
)

// Tree is the log's growing tree, in memory that does not grow with it. It is for one goroutine.
type Tree struct {
	key   *Key // the log's key; nil if it is not available
	ring  *Key // the newest key
	edge  edge
	link  link
	spans []*Span

	newest tlog.Hash // the last leaf's hash
	handed string    // see HandedTo
}

// New is the empty tree of a log. key is nil for a reader without the key: the leaves then have no links, and only their indexes count.
func New(key *Key) *Tree { return &Tree{key: key, ring: key} }

// Within is a tree with so many leaves, for a reader without the key that must tell the following leaves from other records. Its root is
// meaningless.
func Within(size int64) *Tree {
	return &Tree{edge: edge{size, make([]tlog.Hash, bits.OnesCount64(uint64(size)))}}
}

// Size is the number of leaves.
func (t *Tree) Size() int64 { return t.edge.size }

// Next returns the leaf for a record with this value. Only Add adds it to the tree.
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

// Add appends a leaf from Next.
func (t *Tree) Add(l Leaf) {
	t.edge.add(l.hash, t.spans...)
	t.link, t.newest, t.key = l.link, l.hash, l.key
	t.handed = cmp.Or(t.handed, l.handed)
}

// HandedTo is the public key to which the log was handed over, if that key is not available; otherwise empty. The former key may not sign
// anything after that.
func (t *Tree) HandedTo() string { return t.handed }

// Follows adds a record if it is the next leaf of this chain, and reports whether it is.
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
