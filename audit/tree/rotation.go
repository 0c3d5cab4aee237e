package tree

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// A log goes on under another key from the record on that says so, which both keys have signed: a route with a rotation. The former key signs
// checkpoints and links records up to and with that one, the next key from there on. The log's name stays.

// rotation is what such a record says.
type rotation struct {
	former, next string // public keys
	note         []byte // that says so, signed by both
}

// rotationHead begins the text that both keys sign. It is no checkpoint of any log: its second line is no number.
const rotationHead = "lapse log key\n"

// Succeed is the signed note with which the key that the tree is under hands it over to the newest one; nil if that is the same.
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

// readRotation reads the signed note of a rotation, and wants both signatures.
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

// The kinds of records that say which key the log is under.
var (
	originStart = []byte(`{"kind":"origin",`)
	routeStart  = []byte(`{"kind":"route",`)
)

// originKey is the public key that the log's first record names; empty where it names none.
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

// rotationIn is the rotation that a record of the log has; nil for none.
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

// Succession are the keys that a log is under, one after the other, as its records say. It verifies what each of them signs in its time.
// A reader trusts it for one key, which they have from elsewhere: a key that it follows, or that follows it, has signed the change too.
type Succession struct {
	note.Verifier // the reader's

	keys  []note.Verifier
	until []int64 // the leaf with which each but the last hands the log over
	known bool    // the reader's key is among them
	from  int64   // size of the trees from which on a checkpoint says so: a change of the key proves nothing before one that covers it
}

// begin takes the key that the log's first record names.
func (s *Succession) begin(public string) error {
	if public == "" {
		s.keys, s.known = []note.Verifier{s.Verifier}, true // of a former version
		return nil
	}
	verifier, err := note.NewVerifier(public)
	if err != nil {
		return err
	}
	if s.isReaders(verifier) { // it alone would be no proof: what it has signed is
		verifier, s.known = s.Verifier, true
	}
	s.keys = []note.Verifier{verifier}
	return nil
}

func (s *Succession) isReaders(v note.Verifier) bool {
	return v.Name() == s.Name() && v.KeyHash() == s.KeyHash()
}

// rotate takes a change of the key in a leaf.
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

// at is the key that signs a tree of that size.
func (s *Succession) at(size int64) note.Verifier {
	for i, leaf := range s.until {
		if size <= leaf {
			return s.keys[i]
		}
	}
	return s.keys[len(s.keys)-1]
}

// verifierOf is what verifies a checkpoint that says it is of a size.
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

// errOtherKey is said where the reader's key is none of the log's.
var errOtherKey = errors.New("the log is not under this key, nor under one that it follows or that follows it")
