package tree

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// A record of kind route with a rotation, signed by both keys, hands the log over to another key. The former key signs checkpoints and links
// records up to and including that record, the next key from there on. The log's name stays.

// rotation is the content of such a record.
type rotation struct {
	former, next string // public keys
	note         []byte // the statement that both keys signed
}

// rotationHead begins the text that both keys sign. The text cannot be mistaken for a checkpoint: its second line is not a number.
const rotationHead = "lapse log key\n"

// Succeed returns the signed note that hands the log over from the tree's key to the newest key; nil if they are the same.
func (t *Tree) Succeed() ([]byte, error) {
	if t.key == nil || t.key == t.ring {
		return nil, nil
	}
	text := rotationHead + "of " + t.ring.name + "\n" + t.key.public + "\n" + t.ring.public + "\n"
	signed, err := note.Sign(&note.Note{Text: text}, t.key.signer, t.ring.signer)
	if err != nil {
		return nil, fmt.Errorf("sign the change of the log's key: %w", err)
	}
	return signed, nil
}

// readRotation reads the signed note of a rotation and verifies both signatures.
func readRotation(signed []byte) (*rotation, error) {
	text, _ := TextOf(signed)
	lines := strings.Split(text, "\n")
	if len(lines) != 5 || !strings.HasPrefix(text, rotationHead) {
		return nil, errors.New("it is no change of a log's key")
	}
	r := &rotation{lines[2], lines[3], signed}
	for _, public := range lines[2:4] {
		verifier, err := note.NewVerifier(public)
		if err != nil {
			return nil, err
		}
		if verifier.Name() != strings.TrimPrefix(lines[1], "of ") {
			return nil, errors.New("its keys are not of one log")
		}
		if _, err := note.Open(signed, note.VerifierList(verifier)); err != nil {
			return nil, fmt.Errorf("the signature of %s: %w", public, err)
		}
	}
	return r, nil
}

// The kinds of records that name the log's key.
var (
	originStart = []byte(`{"kind":"origin",`)
	routeStart  = []byte(`{"kind":"route",`)
)

// originKey returns the public key that the log's first record names; empty if it names none.
func originKey(entry []byte) string {
	if !bytes.HasPrefix(entry, originStart) {
		return ""
	}
	var j struct {
		Keys []struct {
			Use       string `json:"use"`
			PublicKey string `json:"public_key"`
		} `json:"keys"`
	}
	if json.Unmarshal(entry, &j) != nil {
		return ""
	}
	for _, key := range j.Keys {
		if key.Use == "log" {
			return key.PublicKey
		}
	}
	return ""
}

// rotationIn returns the rotation in a log record; nil if it has none.
func rotationIn(entry []byte) (*rotation, error) {
	if !bytes.HasPrefix(entry, routeStart) || !bytes.Contains(entry, []byte(`"rotation":`)) {
		return nil, nil
	}
	var j struct {
		Rotation string `json:"rotation"`
	}
	if err := json.Unmarshal(entry, &j); err != nil || j.Rotation == "" {
		return nil, err
	}
	return readRotation([]byte(j.Rotation))
}

// Succession holds the keys of a log in the order of the log's records. It verifies each checkpoint with the key of its time. The reader has
// one key from a trusted source. That key vouches for its predecessor and its successor, because it signed the change as well.
type Succession struct {
	note.Verifier // the key that the reader has

	keys  []note.Verifier
	until []int64 // the leaf with which each key but the last hands the log over
	known bool    // the reader's key is among them
	from  int64   // a checkpoint must be this large to prove the change that makes the reader's key known
}

// begin takes the key that the log's first record names.
func (s *Succession) begin(public string) error {
	if public == "" {
		s.keys, s.known = []note.Verifier{s.Verifier}, true // a former version wrote the record
		return nil
	}
	verifier, err := note.NewVerifier(public)
	if err != nil {
		return err
	}
	if s.isReaders(verifier) { // a name in a record proves nothing; what the key signed does
		verifier, s.known = s.Verifier, true
	}
	s.keys = []note.Verifier{verifier}
	return nil
}

func (s *Succession) isReaders(v note.Verifier) bool {
	return v.Name() == s.Name() && v.KeyHash() == s.KeyHash()
}

// rotate takes a change of key that a leaf announces.
func (s *Succession) rotate(leaf int64, r *rotation) error {
	former, err := note.NewVerifier(r.former)
	if err != nil {
		return err
	}
	next, err := note.NewVerifier(r.next)
	if err != nil {
		return err
	}
	if len(s.keys) == 0 {
		return errors.New("the log does not begin with a record that names its key")
	}
	if last := s.keys[len(s.keys)-1]; former.Name() != last.Name() || former.KeyHash() != last.KeyHash() {
		return fmt.Errorf("the key %s hands the log over, which is under another one", r.former)
	}
	wasKnown := s.known
	for _, v := range []*note.Verifier{&former, &next} {
		if !s.isReaders(*v) {
			continue
		}
		if _, err := note.Open(r.note, note.VerifierList(s.Verifier)); err != nil {
			return fmt.Errorf("the change of the key: %w", err)
		}
		*v, s.known = s.Verifier, true
	}
	if s.known && !wasKnown {
		s.from = leaf + 1
	}
	s.keys[len(s.keys)-1] = former
	s.keys, s.until = append(s.keys, next), append(s.until, leaf)
	return nil
}

// at returns the key that signs a tree of that size.
func (s *Succession) at(size int64) note.Verifier {
	for i, leaf := range s.until {
		if size <= leaf {
			return s.keys[i]
		}
	}
	return s.keys[len(s.keys)-1]
}

// verifierOf returns the verifier for the size that a checkpoint claims.
func verifierOf(signed []byte, verifier note.Verifier) (note.Verifier, error) {
	s, is := verifier.(*Succession)
	if !is {
		return verifier, nil
	}
	c, err := Peek(signed)
	if err != nil {
		return nil, err
	}
	return s.at(c.Size), nil
}

// errOtherKey is the fault if the reader's key is not one of the log's keys.
var errOtherKey = errors.New("the log is not under this key, nor under one that it follows or that follows it")
