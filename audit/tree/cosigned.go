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

// KindCosigned tells a checkpoint that witnesses have cosigned from the other fences of the log. It follows the checkpoint itself.
const KindCosigned = "cosigned"

// cosignedJSON is a cosigned checkpoint as it is in the log.
type cosignedJSON struct {
	Kind string `json:"kind"`
	Note string `json:"note"` // the checkpoint's, with the cosignatures after the log's signature
	Seal []byte `json:"seal"` // for those who have the log's key: it is the auditor's, and lacks no cosignature that was there
}

const forCosigned = "lapse cosigned checkpoint\n"

// Cosigned is a cosigned checkpoint of the tree as it goes into the log.
func (t *Tree) Cosigned(signed []byte) ([]byte, error) {
	return json.Marshal(&cosignedJSON{KindCosigned, string(signed), t.key.seal(append([]byte(forCosigned), signed...))})
}

// CosignedIn is the signed note of a cosigned checkpoint in the log; ok is false for anything else. Nothing of it is verified.
func CosignedIn(value []byte) (signed []byte, ok bool) {
	var c cosignedJSON
	if json.Unmarshal(value, &c) != nil || c.Kind != KindCosigned {
		return nil, false
	}
	return []byte(c.Note), true
}

// HasCosigned reports whether this key, or a former one, has sealed a cosigned checkpoint.
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

// Witness is the key with which a witness cosigns (C2SP's tlog-cosignature).
type Witness = torchwood.CosignatureVerifier

// ParseWitness reads a witness's key: name, hash and key, as the witness publishes it.
func ParseWitness(text string) (*Witness, error) {
	w, err := torchwood.NewCosignatureVerifier(strings.TrimSpace(text))
	if err != nil {
		return nil, fmt.Errorf("a witness's key: %w: want NAME+HASH+KEY of an Ed25519 cosigner, as the witness publishes it", err)
	}
	return w, nil
}

// Cosignature is one that verifies: when a witness has seen that a log only grew up to a checkpoint.
type Cosignature struct {
	By *Witness
	At time.Time // by the witness's clock
	// Line is it, as a signed note has it.
	Line string
}

// Cosignatures are those of a signed note that witnesses have made. One in a witness's name that does not verify is an error.
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
			_, err := base64.StdEncoding.Strict().DecodeString(sig.Base64) // two texts must not be one signature
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

// TextOf is the text of a signed note, which its signatures are over, with its end; ok is false for what is no note.
func TextOf(signed []byte) (text string, ok bool) {
	at := strings.LastIndex(string(signed), "\n\n")
	if at < 0 {
		return "", false
	}
	return string(signed[:at+1]), true
}
