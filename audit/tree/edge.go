package tree

import (
	"crypto/sha256"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"
)

// edge is a tree as the roots of its complete subtrees, largest first: enough to append leaves and to compute the tree's root.
type edge struct {
	size   int64
	hashes []tlog.Hash
}

// add appends a leaf. It computes one hash for each subtree that the leaf completes: fewer than one on average. The spans record the
// hashes that they need.
func (e *edge) add(h tlog.Hash, spans ...*Span) {
	level := 0
	for n := e.size; n&1 == 1; n >>= 1 {
		for _, s := range spans {
			s.joined(level, e.size+1-2<<level, h)
		}
		last := len(e.hashes) - 1
		h, e.hashes = tlog.NodeHash(e.hashes[last], h), e.hashes[:last]
		level++
	}
	e.hashes = append(e.hashes, h)
	e.size++
}

// root computes the tree's hash.
func (e *edge) root() tlog.Hash {
	if len(e.hashes) == 0 {
		return sha256.Sum256(nil)
	}
	h := e.hashes[len(e.hashes)-1]
	for i := len(e.hashes) - 2; i >= 0; i-- {
		h = tlog.NodeHash(e.hashes[i], h)
	}
	return h
}

func (e *edge) clone() edge { return edge{e.size, append([]tlog.Hash(nil), e.hashes...)} }

// fits reports whether the number of hashes matches the size.
func (e *edge) fits() bool { return e.size >= 0 && len(e.hashes) == bits.OnesCount64(uint64(e.size)) }

// Edge computes the Merkle root of any growing list of hashes, in memory that does not grow with the list.
type Edge struct{ edge edge }

// Add appends the hash of a leaf.
func (e *Edge) Add(h tlog.Hash) { e.edge.add(h) }

// Size is the number of leaves.
func (e *Edge) Size() int64 { return e.edge.size }

// Root is the tree's hash.
func (e *Edge) Root() tlog.Hash { return e.edge.root() }

// Reset empties the list.
func (e *Edge) Reset() { e.edge.size, e.edge.hashes = 0, e.edge.hashes[:0] }
