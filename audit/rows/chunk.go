package rows

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"golang.org/x/mod/sumdb/tlog"

	"lapse/audit/evidence"
	"lapse/replication"
	"lapse/schemas"
)

// OpProof tells a chunk's record by its header.
const OpProof = "proof"

// Headers are those of a chunk's record, which has no key. It has a position, as events have, so that it is known for ours.
func Headers(source *evidence.Source, c *Chunk) []schemas.Header {
	return evidence.PositionHeaders(source, OpProof, c.From)
}

// ChunkOf reads a record of the proof store; ok is false for a fence, and for what is no chunk.
func ChunkOf(rec *schemas.Record) (from replication.Position, all []Commitment, ok bool) {
	if rec.Header(schemas.HeaderOp) != OpProof {
		return from, nil, false
	}
	from, err := evidence.EventPosition(rec)
	if err != nil {
		return from, nil, false
	}
	all, err = ParseChunk(rec.Value)
	return from, all, err == nil && all[0].Ordinal == from.Ordinal
}

// maxChunk is how many commitments a chunk has at most: 32 KiB.
const maxChunk = 1024

// Chunk is a part of a transaction's commitments.
type Chunk struct {
	From replication.Position // of the first event
	// Value is runs of commitments whose ordinals follow one another: the first ordinal and their number, 4 bytes each, and the
	// commitments.
	Value []byte
}

// chunk is the one that is filled.
type chunk struct {
	at    replication.Position
	rows  int
	next  uint32 // that goes on the run
	run   int    // where the number of the run is
	out   Chunk
	value []byte
}

func (c *chunk) begin(at replication.Position) { c.at, c.rows, c.value = at, 0, c.value[:0] }

func (c *chunk) add(ordinal uint32, commitment tlog.Hash) {
	if c.rows == 0 {
		c.at.Ordinal, c.value = ordinal, c.value[:0]
	}
	if c.rows == 0 || ordinal != c.next {
		c.value = binary.BigEndian.AppendUint32(c.value, ordinal)
		c.run = len(c.value)
		c.value = append(c.value, 0, 0, 0, 0)
	}
	number := c.value[c.run : c.run+4]
	binary.BigEndian.PutUint32(number, binary.BigEndian.Uint32(number)+1)
	c.value = append(c.value, commitment[:]...)
	c.rows, c.next = c.rows+1, ordinal+1
}

func (c *chunk) take() *Chunk {
	c.out = Chunk{c.at, c.value}
	c.rows = 0
	return &c.out
}

// Commitment is of one event.
type Commitment struct {
	Ordinal uint32
	Hash    tlog.Hash
}

var errChunk = errors.New("it is no chunk of commitments")

// ParseChunk reads a chunk's value. Ordinals ascend.
func ParseChunk(value []byte) (all []Commitment, err error) {
	for len(value) > 0 {
		if len(value) < 8 {
			return nil, errChunk
		}
		ordinal, n := binary.BigEndian.Uint32(value), binary.BigEndian.Uint32(value[4:])
		value = value[8:]
		if n == 0 || uint64(n) > uint64(len(value)/sha256.Size) || len(all)+int(n) > maxChunk || uint64(ordinal)+uint64(n) > 1<<32 ||
			len(all) > 0 && ordinal <= all[len(all)-1].Ordinal {
			return nil, errChunk
		}
		for range n {
			all = append(all, Commitment{ordinal, tlog.Hash(value[:sha256.Size])})
			ordinal, value = ordinal+1, value[sha256.Size:]
		}
	}
	if len(all) == 0 {
		return nil, errChunk
	}
	return all, nil
}
