package tree

import (
	"crypto/hmac"
	"encoding/binary"

	"golang.org/x/mod/sumdb/tlog"
)

// linkSize is how many bytes of the HMAC a link keeps. Every leaf stores one forever, and random bytes do not compress. An attacker can
// test one guess per start of the auditor, so 64 bits are enough.
const linkSize = 8

// link authenticates the chain up to and including a leaf. The first leaf's link follows the zero link; the key depends on the log's name.
type link [linkSize]byte

// next returns the link of the leaf at index, which follows a leaf with link l. Two leaves may share a link by chance, but never an index.
func (k *Key) next(l link, index int64, hash tlog.Hash) (next link) {
	var sum [32]byte
	k.mac.Reset()
	k.mac.Write(binary.BigEndian.AppendUint64(sum[:0], uint64(index)))
	k.mac.Write(l[:])
	k.mac.Write(hash[:])
	copy(next[:], k.mac.Sum(sum[:0]))
	return next
}

// seal returns a MAC over the parts of a checkpoint that its note does not sign. No link equals a seal: a link's text has 48 bytes.
func (k *Key) seal(text []byte) []byte {
	k.mac.Reset()
	k.mac.Write([]byte("lapse checkpoint: the edge and the link, for the next start\n"))
	k.mac.Write(text)
	return k.mac.Sum(nil)
}

func equalMACs(a, b []byte) bool { return hmac.Equal(a, b) }
