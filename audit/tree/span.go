package tree

import (
	"fmt"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"
)

// Span is what a tree must remember from one size on, to prove at any later size that it only grew: the roots of the complete subtrees at
// that size, and of those that later joined them, at most 64 of each. It costs no hashing: the tree computes all of them anyway.
type Span struct {
	from  edge
	right []node
}

// node is the root of a complete subtree.
type node struct {
	level int
	at    int64 // its index within the level
	hash  tlog.Hash
}

// Span begins a span at the tree's current size. The tree updates it until Keep drops it.
func (t *Tree) Span() *Span {
	s := &Span{from: t.edge.clone()}
	t.spans = append(t.spans, s)
	return s
}

// Keep drops the spans for whose size keep returns false.
func (t *Tree) Keep(keep func(size int64) bool) {
	kept := t.spans[:0]
	for _, s := range t.spans {
		if keep(s.from.size) {
			kept = append(kept, s)
		}
	}
	clear(t.spans[len(kept):])
	t.spans = kept
}

// proofs returns the proofs that the tree grew, one for each span.
func (t *Tree) proofs() (Proofs, error) {
	all := Proofs{}
	for _, s := range t.spans {
		proof, err := s.proof(&t.edge)
		if err != nil {
			return nil, err
		}
		all[s.from.size] = proof
	}
	return all, nil
}

// Proofs are consistency proofs of one tree, by the size of the smaller tree.
type Proofs map[int64]tlog.TreeProof

// joined records that two subtrees of a level joined. The left one begins at leaf.
func (s *Span) joined(level int, leaf int64, right tlog.Hash) {
	if middle := leaf + 1<<level; leaf < s.from.size && s.from.size <= middle {
		s.right = append(s.right, node{level, middle >> level, right})
	}
}

// proof proves that the tree with that edge grew from the span's beginning.
func (s *Span) proof(to *edge) (tlog.TreeProof, error) {
	if s.from.size == 0 {
		return nil, nil // every tree grew from the empty tree
	}
	known := map[int64]tlog.Hash{}
	for _, n := range append(append(s.from.nodes(), to.nodes()...), s.right...) {
		known[tlog.StoredHashIndex(n.level, n.at)] = n.hash
	}
	return tlog.ProveTree(to.size, s.from.size, tlog.HashReaderFunc(func(at []int64) ([]tlog.Hash, error) {
		hashes := make([]tlog.Hash, len(at))
		for i, index := range at {
			hash, ok := known[index]
			if !ok {
				return nil, fmt.Errorf("prove that the tree of %d leaves grew from %d: a hash was not kept", to.size, s.from.size)
			}
			hashes[i] = hash
		}
		return hashes, nil
	}))
}

// nodes returns the complete subtrees of an edge with their places.
func (e *edge) nodes() []node {
	all := make([]node, 0, len(e.hashes))
	leaf, rest := int64(0), e.size
	for _, h := range e.hashes {
		level := bits.Len64(uint64(rest)) - 1
		all = append(all, node{level, leaf >> level, h})
		leaf, rest = leaf+1<<level, rest-1<<level
	}
	return all
}
