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

// OpProof is the op header of a chunk's record.
const OpProof = "proof"

// Headers returns the headers of a chunk's record, which has no key. Like an event, the record has a position, so that readers recognize it.
func Headers(source *evidence.Source, c *Chunk) []schemas.Header {
	return evidence.PositionHeaders(source, OpProof, c.From)
}

// ChunkOf reads a record of the proof store; ok is false for a fence, and for anything else but a chunk.
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

// maxChunk is the largest number of commitments in a chunk: 32 KiB.
const maxChunk = 1024

// Chunk is part of a transaction's commitments.
type Chunk struct {
	From replication.Position // the first event's
	// Value is a list of runs: the first ordinal and the number of commitments, 4 bytes each, and the commitments, whose ordinals are
	// consecutive.
	Value []byte
}

// chunk is the chunk that is being filled.
type chunk struct {
	at    replication.Position
	rows  int
	next  uint32 // the ordinal that would extend the run
	run   int    // the offset of the run's number of commitments
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

// Commitment is the commitment to one event.
type Commitment struct {
	Ordinal uint32
	Hash    tlog.Hash
}

var errChunk = errors.New("it is no chunk of commitments")

// ParseChunk reads a chunk's value. It rejects ordinals that do not ascend.
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
