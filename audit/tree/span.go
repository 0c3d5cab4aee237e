package tree

import (
	"fmt"
	"math/bits"

	"golang.org/x/mod/sumdb/tlog"
)

// Span is what a tree must remember from one size on, to prove at any later size that it only grew: the roots of the whole subtrees
// that there were, and of those that came beside them, 64 of each at most. It costs no hash: the tree makes all of them anyhow.
type Span struct {
	from  edge
	right []node
}

// node is the root of a whole subtree.
type node struct {
	level int
	at    int64 // its place among those of its level
	hash  tlog.Hash
}

// Span begins a span at the tree's size. The tree carries it on until Keep leaves it out.
func (t *Tree) Span() *Span {
	s := &Span{from: t.edge.clone()}
	t.spans = append(t.spans, s)
	return s
}

// Keep has the tree carry on those of its spans alone that are of a size that keep wants.
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

// proofs are the proofs that the tree grew from each size that a span began at.
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

// joined takes note of two subtrees of a level that become one; the left one begins at leaf.
func (s *Span) joined(level int, leaf int64, right tlog.Hash) {
	if middle := leaf + 1<<level; leaf < s.from.size && s.from.size <= middle {
		s.right = append(s.right, node{level, middle >> level, right})
	}
}

// proof is the proof that the tree with an edge has grown from the span's beginning.
func (s *Span) proof(to *edge) (tlog.TreeProof, error) {
	if s.from.size == 0 {
		return nil, nil // an empty tree needs none
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

// nodes are the whole subtrees of an edge, with their places.
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
