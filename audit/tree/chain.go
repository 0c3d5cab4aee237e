package tree

import (
	"crypto/hmac"
	"encoding/binary"

	"golang.org/x/mod/sumdb/tlog"
)

// linkSize is how many bytes of an HMAC a link has. Each leaf has one for ever, and nothing compresses it. To test a guess takes a start
// of the auditor, so that 64 bits are more than anybody guesses.
const linkSize = 8

// link is the chain up to and with a leaf. The first leaf's follows the zero link; the log's name is in the key.
type link [linkSize]byte

// next is the link of the leaf with an index, after one that has l. Two leaves may have one link by chance, but never one index.
func (k *Key) next(l link, index int64, hash tlog.Hash) (next link) {
	var sum [32]byte
	k.mac.Reset()
	k.mac.Write(binary.BigEndian.AppendUint64(sum[:0], uint64(index)))
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
