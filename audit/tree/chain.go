package tree

import (
	"crypto/hmac"

	"golang.org/x/mod/sumdb/tlog"
)

// linkSize is how many bytes of an HMAC a link has. Each leaf has one for ever, and nothing compresses it; 128 bits are more than
// anybody guesses.
const linkSize = 16

// link is the chain up to and with a leaf. The first leaf's follows the zero link; the log's name is in the key.
type link [linkSize]byte

// next is the link of a leaf after the one that has l.
func (k *Key) next(l link, hash tlog.Hash) (next link) {
	var sum [32]byte
	k.mac.Reset()
	k.mac.Write(l[:])
	k.mac.Write(hash[:])
	copy(next[:], k.mac.Sum(sum[:0]))
	return next
}

// seal is a MAC over what a checkpoint says beside its note. No link is one: their texts have 48 bytes.
func (k *Key) seal(text []byte) []byte {
	k.mac.Reset()
	k.mac.Write([]byte("lapse checkpoint: the edge and the link, for the next start\n"))
	k.mac.Write(text)
	return k.mac.Sum(nil)
}

func equalMACs(a, b []byte) bool { return hmac.Equal(a, b) }
