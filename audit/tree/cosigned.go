package tree

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
)

// KindCosigned is the kind of a checkpoint with witnesses' cosignatures among the log's fences. It follows the checkpoint itself.
const KindCosigned = "cosigned"

// cosignedJSON is a cosigned checkpoint as the log stores it.
type cosignedJSON struct {
	Kind string `json:"kind"`
	Note string `json:"note"` // the checkpoint's note; the cosignatures follow the log's signature
	Seal []byte `json:"seal"` // shows readers with the log's key that the auditor wrote it and that no cosignature was removed
}

const forCosigned = "lapse cosigned checkpoint\n"

// Cosigned returns the record of a cosigned checkpoint.
func (t *Tree) Cosigned(signed []byte) ([]byte, error) {
	return json.Marshal(&cosignedJSON{KindCosigned, string(signed), t.key.seal(append([]byte(forCosigned), signed...))})
}

// CosignedIn returns the signed note of a cosigned checkpoint in the log; ok is false for any other record. It verifies nothing.
func CosignedIn(value []byte) (signed []byte, ok bool) {
	var c cosignedJSON
	if json.Unmarshal(value, &c) != nil || c.Kind != KindCosigned {
		return nil, false
	}
	return []byte(c.Note), true
}

// HasCosigned reports whether this key or a former one sealed a cosigned checkpoint.
func (k *Key) HasCosigned(value []byte) bool {
	var c cosignedJSON
	if json.Unmarshal(value, &c) != nil || c.Kind != KindCosigned {
		return false
	}
	for text := append([]byte(forCosigned), c.Note...); k != nil; k = k.former {
		if equalMACs(c.Seal, k.seal(text)) {
			return true
		}
	}
	return false
}

// Witness is the public key of a witness (C2SP tlog-cosignature).
type Witness = torchwood.CosignatureVerifier

// ParseWitness parses a witness's public key in the form in which the witness publishes it: name, hash and key.
func ParseWitness(text string) (*Witness, error) {
	w, err := torchwood.NewCosignatureVerifier(strings.TrimSpace(text))
	if err != nil {
		return nil, fmt.Errorf("a witness's key: %w: want NAME+HASH+KEY of an Ed25519 cosigner, as the witness publishes it", err)
	}
	return w, nil
}

// Cosignature is a verified cosignature. It says when the witness saw that the log only grew up to the checkpoint.
type Cosignature struct {
	By *Witness
	At time.Time // by the witness's clock
	// Line is the cosignature as it appears in a signed note.
	Line string
}

// Cosignatures returns the witnesses' cosignatures on a note. A line with a witness's name that does not verify is an error.
func Cosignatures(signed []byte, by []*Witness) (all []Cosignature, err error) {
	if len(by) == 0 {
		return nil, nil
	}
	verifiers := make([]note.Verifier, len(by))
	for i, w := range by {
		verifiers[i] = w
	}
	n, err := note.Open(signed, note.VerifierList(verifiers...))
	var none *note.UnverifiedNoteError
	var wrong *note.InvalidSignatureError
	switch {
	case errors.As(err, &none):
		return nil, nil
	case errors.As(err, &wrong):
		return nil, fmt.Errorf("the cosignature of %s does not verify", wrong.Name)
	case err != nil:
		return nil, err
	}
	for _, w := range by {
		for _, sig := range n.Sigs {
			if sig.Name != w.Name() || sig.Hash != w.KeyHash() {
				continue
			}
			_, err := base64.StdEncoding.Strict().DecodeString(sig.Base64) // or two texts would be the same signature
			var at int64
			if err == nil {
				at, err = torchwood.CosignatureTimestamp(sig)
			}
			if err != nil {
				return nil, fmt.Errorf("the cosignature of %s: %w", sig.Name, err)
			}
			all = append(all, Cosignature{w, time.Unix(at, 0).UTC(), fmt.Sprintf("— %s %s\n", sig.Name, sig.Base64)})
		}
	}
	return all, nil
}

// TextOf returns the signed text of a note, including its final newline; ok is false for anything but a note.
func TextOf(signed []byte) (text string, ok bool) {
	at := strings.LastIndex(string(signed), "\n\n")
	if at < 0 {
		return "", false
	}
	return string(signed[:at+1]), true
}
