package schemas

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"github.com/google/uuid"
)

// claimFormat is the first field of the canonical bytes. Another layout gets another name, so two layouts never have the same bytes.
const claimFormat = "lapse-claim-3"

// dropFormat precedes the canonical bytes of a claim to drop a partition: a signature for deleting rows is none for dropping a
// partition, and the other way round.
const dropFormat = "lapse-drop-1"

// Claim is what a batch says about itself before it deletes anything: who deletes, under which policy, in which transaction, and
// which relations it may touch. It is the row of lapse.batch. Its MAC is what makes the audit count a delete as the system's.
//
// All instants are whole microseconds in UTC, as PostgreSQL keeps them.
type Claim struct {
	SystemIdentifier uint64
	DatabaseOID      uint32
	History          History  // the number of the history that the batch belongs to
	Timeline         Timeline // of the server when the batch began
	XID              XID      // the 64-bit transaction id; the WAL carries its low half
	StartedAt        time.Time
	Batch            uuid.UUID
	PolicyID         PolicyID
	Policy           PolicyName
	PolicyVersion    PolicyVersion
	Run              uuid.UUID
	Cutoff           time.Time
	HoldVersion      HoldVersion
	Target           uint32   // the table or leaf the batch deletes from
	Cascades         []uint32 // the relations in which foreign keys may delete rows too, ascending
	Functions        Digest   // digest of the functions that run in the batch: see Digest.Keyed
}

// Canonical returns the bytes that the MAC covers: every field has a fixed width or is preceded by its length, so two different claims
// never have the same bytes.
func (c *Claim) Canonical() []byte {
	b := make([]byte, 0, 192+len(c.Policy)+4*len(c.Cascades))
	b = appendText(b, claimFormat)
	b = binary.BigEndian.AppendUint64(b, c.SystemIdentifier)
	b = binary.BigEndian.AppendUint32(b, c.DatabaseOID)
	b = binary.BigEndian.AppendUint32(b, uint32(c.History))
	b = binary.BigEndian.AppendUint32(b, uint32(c.Timeline))
	b = binary.BigEndian.AppendUint64(b, uint64(c.XID))
	b = appendInstant(b, c.StartedAt)
	b = append(b, c.Batch[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(c.PolicyID))
	b = appendText(b, string(c.Policy))
	b = binary.BigEndian.AppendUint32(b, uint32(c.PolicyVersion))
	b = append(b, c.Run[:]...)
	b = appendInstant(b, c.Cutoff)
	b = binary.BigEndian.AppendUint64(b, uint64(c.HoldVersion))
	b = binary.BigEndian.AppendUint32(b, c.Target)
	b = binary.BigEndian.AppendUint32(b, uint32(len(c.Cascades)))
	for _, oid := range c.Cascades {
		b = binary.BigEndian.AppendUint32(b, oid)
	}
	return append(b, c.Functions[:]...)
}

// MAC returns the claim's HMAC-SHA-256 under key.
func (c *Claim) MAC(key Key) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(c.Canonical())
	return h.Sum(nil)
}

// Verify reports whether mac is the claim's MAC under key, in constant time.
func (c *Claim) Verify(key Key, mac []byte) bool {
	return key.Check() == nil && hmac.Equal(c.MAC(key), mac)
}

// DropMAC is the MAC of a claim to drop the whole target.
func (c *Claim) DropMAC(key Key) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(append(appendText(nil, dropFormat), c.Canonical()...))
	return h.Sum(nil)
}

// VerifyDrop verifies the MAC of a claim to drop the whole target.
func (c *Claim) VerifyDrop(key Key, mac []byte) bool {
	return key.Check() == nil && hmac.Equal(c.DropMAC(key), mac)
}

// Covers reports whether the claim names oid as a relation that its deletes may cascade to.
func (c *Claim) Covers(oid uint32) bool {
	_, found := slices.BinarySearch(c.Cascades, oid)
	return found
}

func appendText(b []byte, s string) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}

func appendInstant(b []byte, t time.Time) []byte {
	return binary.BigEndian.AppendUint64(b, uint64(t.UnixMicro()))
}
