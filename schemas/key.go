package schemas

import (
	"errors"
	"fmt"
	"log/slog"
)

// MinKey is the length of the shortest valid key, in bytes.
const MinKey = 32

// ErrKeyTooShort says that a key has fewer than MinKey bytes.
var ErrKeyTooShort = errors.New("key is shorter than 32 bytes: make one with `lapse init --keys DIR`")

// Key is a secret: the tag key, which executor and auditor share and which never enters the database, or another of lapse.yaml's keys.
// Printed, logged or encoded as text it is always a fixed text.
type Key []byte

const redacted = "(a key)"

// Check returns ErrKeyTooShort for a key that is too short to protect anything.
func (k Key) Check() error {
	if len(k) < MinKey {
		return ErrKeyTooShort
	}
	return nil
}

// Fingerprint identifies the key without revealing it.
func (k Key) Fingerprint() string { return Fingerprint(k) }

// Format hides the key from every verb of fmt.
func (k Key) Format(f fmt.State, _ rune) { fmt.Fprint(f, redacted) }

// MarshalText hides the key from encoders, JSON's among them.
func (k Key) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// LogValue hides the key from logs.
func (k Key) LogValue() slog.Value { return slog.StringValue(redacted) }
