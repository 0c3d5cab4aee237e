package tree

import (
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// Prover makes the inclusion proof of one leaf while it sees the leaves of a tree one by one. Its memory does not grow with the tree.
type Prover struct {
	size, index int64
	needed      []int64 // the hashes of the proof, by tlog's index
	parts       []part
	next        int64
}

// part is a complete subtree whose root is in the proof.
type part struct {
	from, to int64
	edge     edge
}

var errCaptured = errors.New("captured")

// NewProver prepares the proof of the leaf at index in a tree of that size.
func NewProver(size, index int64) (*Prover, error) {
	p := &Prover{size: size, index: index}
	if _, err := tlog.ProveRecord(size, index, tlog.HashReaderFunc(func(needed []int64) ([]tlog.Hash, error) {
		p.needed = needed
		return nil, errCaptured
	})); err != nil && !errors.Is(err, errCaptured) {
		return nil, err
	}
	for _, stored := range p.needed {
		level, n := tlog.SplitStoredHashIndex(stored)
		p.parts = append(p.parts, part{from: n << level, to: (n + 1) << level})
	}
	return p, nil
}

// Add takes the next leaf's hash.
func (p *Prover) Add(h tlog.Hash) {
	for i := range p.parts {
		if part := &p.parts[i]; p.next >= part.from && p.next < part.to {
			part.edge.add(h)
		}
	}
	p.next++
}

// Proof returns the proof, once all leaves were added.
func (p *Prover) Proof() (tlog.RecordProof, error) {
	if p.next < p.size {
		return nil, fmt.Errorf("there are %d leaves, and the tree has %d", p.next, p.size)
	}
	return tlog.ProveRecord(p.size, p.index, tlog.HashReaderFunc(func(needed []int64) ([]tlog.Hash, error) {
		hashes := make([]tlog.Hash, len(needed))
		for i := range needed {
			hashes[i] = p.parts[i].edge.root()
		}
		return hashes, nil
	}))
}
