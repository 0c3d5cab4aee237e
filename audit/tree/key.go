package tree

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash"

	"golang.org/x/mod/sumdb/note"

	"lapse/schemas"
)

// Key signs the checkpoints and links the leaves of one log. It is derived from the key named log. It is not safe for concurrent use.
type Key struct {
	name     string
	signer   note.Signer
	verifier note.Verifier
	public   string
	mac      hash.Hash

	former *Key // the previous key, if it is available
}

// The labels of the derivations. They make the derived keys independent of each other.
const (
	forSignatures = "lapse checkpoint signatures"
	forLinks      = "lapse leaf links "
)

// NewKey derives a log's key. name is the origin of its checkpoints: not empty, without spaces and plus signs. former are keys that the
// log is still under, or used to be under.
func NewKey(key schemas.Key, name string, former ...schemas.Key) (*Key, error) {
	if err := key.Check(); err != nil {
		return nil, fmt.Errorf("log %w", err)
	}
	seed, err := hkdf.Expand(sha256.New, key, forSignatures, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("derive the log's key: %w", err)
	}
	links, err := hkdf.Expand(sha256.New, key, forLinks+name, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("derive the log's key: %w", err)
	}
	private := ed25519.NewKeyFromSeed(seed)
	k := &Key{name: name, mac: hmac.New(sha256.New, links)}
	if k.public, err = note.NewEd25519VerifierKey(name, private.Public().(ed25519.PublicKey)); err != nil {
		return nil, fmt.Errorf("derive the log's key: %w", err)
	}
	if k.verifier, err = note.NewVerifier(k.public); err != nil {
		return nil, fmt.Errorf("the log's name %q: %w", name, err)
	}
	k.signer, err = note.NewSigner(fmt.Sprintf("PRIVATE+KEY+%s+%08x+%s", name, k.verifier.KeyHash(),
		base64.StdEncoding.EncodeToString(append([]byte{algEd25519}, seed...))))
	if err != nil || len(former) == 0 {
		return k, err
	}
	k.former, err = NewKey(former[0], name, former[1:]...)
	return k, err
}

// of returns this key or the former one with that public key; nil if none has it.
func (k *Key) of(public string) *Key {
	for ; k != nil && k.public != public; k = k.former {
	}
	return k
}

// By returns the key, this one or a former one, that signed a note; nil if none did.
func (k *Key) By(signed []byte) *Key {
	for ; k != nil; k = k.former {
		if _, err := Open(signed, k.verifier); err == nil {
			break
		}
	}
	return k
}

// All returns this key and the former ones.
func (k *Key) All() (all []*Key) {
	for ; k != nil; k = k.former {
		all = append(all, k)
	}
	return all
}

// algEd25519 is Ed25519's number in C2SP's signed-note.
const algEd25519 = 1

// Name is the log's name.
func (k *Key) Name() string { return k.name }

// Public is the public key as C2SP's signed-note writes it: name, hash and key.
func (k *Key) Public() string { return k.public }

// Verifier is Public, parsed.
func (k *Key) Verifier() note.Verifier { return k.verifier }
