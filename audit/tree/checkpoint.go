package tree

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"lapse/schemas"
)

// KindCheckpoint is the kind of a checkpoint among the log's fences.
const KindCheckpoint = "checkpoint"

// Snapshot is a tree at one moment. It may be signed when all of its leaves are durable.
type Snapshot struct {
	// Proofs show that the tree grew from each size at which a span began.
	Proofs Proofs

	key  *Key
	edge edge
	link link
}

// Snapshot copies the tree as it is now.
func (t *Tree) Snapshot() (*Snapshot, error) {
	proofs, err := t.proofs()
	return &Snapshot{proofs, t.key, t.edge.clone(), t.link}, err
}

// Size is the number of leaves.
func (s *Snapshot) Size() int64 { return s.edge.size }

// Root is the tree's hash.
func (s *Snapshot) Root() tlog.Hash { return s.edge.root() }

// checkpointJSON is a checkpoint as the log stores it.
type checkpointJSON struct {
	Kind string `json:"kind"`
	// Note is a signed C2SP tlog-checkpoint.
	Note string `json:"note"`
	// The auditor's next start continues from the rest, and so does Stream.
	Edge   []tlog.Hash `json:"edge"`
	Link   []byte      `json:"link"`
	Offset int64       `json:"offset"`
	Seal   []byte      `json:"seal"`
}

// sealed returns the text that the seal covers. Note and edge consist of lines and base64 only, so the text can be split in one way only.
func (c *checkpointJSON) sealed() []byte {
	text := fmt.Appendf(nil, "%d\n%x\n%d\n", c.Offset, c.Link, len(c.Edge))
	for _, h := range c.Edge {
		text = append(append(text, h.String()...), '\n')
	}
	return append(text, c.Note...)
}

// Sign signs a snapshot. It returns the checkpoint's record and its signed note. Every leaf of the snapshot must be durable, and every
// later leaf must be at offset or after it.
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

// Resume restores the tree of a checkpoint in the log, and the offset from which to look for its next leaf. ok is false unless this key or
// a former one made the checkpoint.
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

// Checkpoint is the content of a signed note.
type Checkpoint struct {
	Origin string
	Size   int64
	Root   tlog.Hash
}

// NoteIn returns the signed note of a checkpoint in the log; ok is false for any other record. It verifies nothing.
func NoteIn(value []byte) (signed []byte, ok bool) {
	var c checkpointJSON
	if json.Unmarshal(value, &c) != nil || c.Kind != KindCheckpoint {
		return nil, false
	}
	return []byte(c.Note), true
}

// CheckpointIn returns the checkpoint that a log's record is, with its signed note; nil for any other record. It verifies nothing.
func CheckpointIn(rec *schemas.Record) (signed []byte, of *Checkpoint) {
	if !rec.IsFence() {
		return nil, nil
	}
	signed, is := NoteIn(rec.Value)
	if !is {
		return nil, nil
	}
	of, err := Peek(signed)
	if err != nil {
		return nil, nil
	}
	return signed, of
}

// Open verifies the log's own signature on a note and ignores all others.
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
		// The unused bits of the last base64 digit must be zero, or two texts would be the same signature.
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

// Peek parses a signed note without verifying it.
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
