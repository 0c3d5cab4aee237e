package tree

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// KindCheckpoint tells a checkpoint from the other fences of the log.
const KindCheckpoint = "checkpoint"

// Snapshot is a tree at one moment, to be signed when all of its leaves are durable.
type Snapshot struct {
	// Proofs that it grew, from each size that a span of the tree began at.
	Proofs Proofs

	key  *Key
	edge edge
	link link
}

// Snapshot keeps the tree as it is.
func (t *Tree) Snapshot() (*Snapshot, error) {
	proofs, err := t.proofs()
	return &Snapshot{proofs, t.key, t.edge.clone(), t.link}, err
}

// Size is how many leaves it has.
func (s *Snapshot) Size() int64 { return s.edge.size }

// Root is its hash.
func (s *Snapshot) Root() tlog.Hash { return s.edge.root() }

// checkpointJSON is a checkpoint as it is in the log.
type checkpointJSON struct {
	Kind string `json:"kind"`
	// Note is C2SP's tlog-checkpoint, signed.
	Note string `json:"note"`
	// The rest is for the next start, and for nobody else.
	Edge   []tlog.Hash `json:"edge"`
	Link   []byte      `json:"link"`
	Offset int64       `json:"offset"`
	Seal   []byte      `json:"seal"`
}

// sealed is what the seal is over. Note and edge have lines and base64 only, so that nothing in it can be cut in two ways.
func (c *checkpointJSON) sealed() []byte {
	text := fmt.Appendf(nil, "%d\n%x\n%d\n", c.Offset, c.Link, len(c.Edge))
	for _, h := range c.Edge {
		text = append(append(text, h.String()...), '\n')
	}
	return append(text, c.Note...)
}

// Sign is the checkpoint over a snapshot, as it goes into the log, and its signed note. Every leaf of it must be durable, and every later
// one must be at offset or above.
func (s *Snapshot) Sign(offset int64) (value, signed []byte, err error) {
	text := torchwood.Checkpoint{Origin: s.key.name, Tree: tlog.Tree{N: s.edge.size, Hash: s.edge.root()}}.String()
	signed, err = note.Sign(&note.Note{Text: text}, s.key.signer)
	if err != nil {
		return nil, nil, fmt.Errorf("sign a checkpoint: %w", err)
	}
	c := &checkpointJSON{Kind: KindCheckpoint, Note: string(signed), Edge: s.edge.hashes, Link: s.link[:], Offset: offset}
	c.Seal = s.key.seal(c.sealed())
	value, err = json.Marshal(c)
	return value, signed, err
}

// Resume is the tree of a checkpoint in the log, and the offset from which on its next leaf is found. ok is false for anything but a
// checkpoint that this key has made, or a former one.
func (k *Key) Resume(value []byte) (t *Tree, offset int64, ok bool) {
	var c checkpointJSON
	if json.Unmarshal(value, &c) != nil || c.Kind != KindCheckpoint || len(c.Link) != linkSize {
		return nil, 0, false
	}
	ring, sealed := k, c.sealed()
	for k != nil && !equalMACs(c.Seal, k.seal(sealed)) {
		k = k.former
	}
	if k == nil {
		return nil, 0, false
	}
	signed, err := Open([]byte(c.Note), k.verifier)
	if err != nil {
		return nil, 0, false
	}
	t = &Tree{key: k, ring: ring, edge: edge{signed.Size, c.Edge}, link: link(c.Link)}
	return t, c.Offset, t.edge.fits() && t.edge.root() == signed.Root
}

// Checkpoint is what a signed note says.
type Checkpoint struct {
	Origin string
	Size   int64
	Root   tlog.Hash
}

// NoteIn is the signed note of a checkpoint in the log; ok is false for anything else. Nothing of it is verified.
func NoteIn(value []byte) (signed []byte, ok bool) {
	var c checkpointJSON
	if json.Unmarshal(value, &c) != nil || c.Kind != KindCheckpoint {
		return nil, false
	}
	return []byte(c.Note), true
}

// Open verifies a signed note: the log's own signature, whatever others there are.
func Open(signed []byte, verifier note.Verifier) (*Checkpoint, error) {
	verifier, err := verifierOf(signed, verifier)
	if err != nil {
		return nil, err
	}
	n, err := note.Open(signed, note.VerifierList(verifier))
	if err != nil {
		return nil, fmt.Errorf("the signature of %s: %w", verifier.Name(), err)
	}
	for _, sig := range append(n.Sigs, n.UnverifiedSigs...) {
		// Two texts must not be one signature: the last digit of base64 may have bits that nobody reads.
		if _, err := base64.StdEncoding.Strict().DecodeString(sig.Base64); err != nil {
			return nil, fmt.Errorf("the signature of %s: %w", sig.Name, err)
		}
	}
	c, err := torchwood.ParseCheckpoint(n.Text)
	if err != nil {
		return nil, err
	}
	if c.Origin != verifier.Name() {
		return nil, fmt.Errorf("it is of the log %q and signed by %q", c.Origin, verifier.Name())
	}
	return &Checkpoint{c.Origin, c.N, c.Hash}, nil
}

// Peek reads a signed note without verifying it.
func Peek(signed []byte) (*Checkpoint, error) {
	var unverified *note.UnverifiedNoteError
	if _, err := note.Open(signed, note.VerifierList()); !errors.As(err, &unverified) {
		return nil, err
	}
	c, err := torchwood.ParseCheckpoint(unverified.Note.Text)
	if err != nil {
		return nil, err
	}
	return &Checkpoint{c.Origin, c.N, c.Hash}, nil
}
