package evidence

import (
	"crypto/hmac"
	"crypto/sha256"
	"hash"

	"lapse/schemas"
)

// An index stores keys compressed, so a key of 3 kB may be hundreds of kilobytes long, and six times that as JSON, in the record's key and
// again in its value: more than a topic accepts. One inserted row could then stop the audit. So if a row's keys are longer than maxKeys as
// JSON, those of their values that are longer than maxKeyValue are hashed, and the event says how long they are.
//
// 32 columns, the most that an index has, are then shorter than maxKeys: 32 × 6 × (256 + 63) bytes, plus punctuation.
const (
	maxKeys     = 64 << 10
	maxKeyValue = 256
	hashPrefix  = "hmac-sha256:"
)

// A policy may ask for hashes of all values (events: values: hashed_keys).

// keyHasher replaces values.
type keyHasher struct {
	mac    hash.Hash
	keys   []Key
	hashed []int // which of keys are hashed
	sizes  []int // the size of each of their values in bytes
	text   []byte
	sum    [sha256.Size]byte
}

func newKeyHasher(key schemas.Key) *keyHasher { return &keyHasher{mac: hmac.New(sha256.New, key)} }

// shorten returns keys with hashes instead of values of more than longest bytes, and which those are. NULL stays. Both results are valid
// until the next call.
func (h *keyHasher) shorten(keys []Key, longest int) ([]Key, []int) {
	h.keys, h.hashed, h.sizes, h.text = append(h.keys[:0], keys...), h.hashed[:0], h.sizes[:0], h.text[:0]
	for i := range h.keys {
		if value := h.keys[i].Value; !h.keys[i].Null && len(value) > longest {
			h.keys[i].Value, h.keys[i].Column = h.hash(value), nil
			h.hashed, h.sizes = append(h.hashed, i), append(h.sizes, len(value))
		}
	}
	return h.keys, h.hashed
}

// HashOf returns what an event shows instead of a hashed value.
func HashOf(key schemas.Key, value string) string {
	return string(newKeyHasher(key).hash([]byte(value)))
}

// hash appends to text, so that the hashes of one row stay side by side.
func (h *keyHasher) hash(value []byte) []byte {
	h.mac.Reset()
	h.mac.Write(value)
	start := len(h.text)
	h.text = append(h.text, hashPrefix...)
	for _, b := range h.mac.Sum(h.sum[:0]) {
		h.text = append(h.text, lowerHex[b>>4], lowerHex[b&15])
	}
	return h.text[start:len(h.text):len(h.text)]
}
