package kafka

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"time"

	"github.com/segmentio/kafka-go/compress"

	"lapse/schemas"
)

// Sequence numbers the records of one producer epoch in one partition. It wraps to 0 after 2^31-1, as the broker's does.
type sequence int32

func (s sequence) plus(n int32) sequence {
	return sequence((int64(s) + int64(n)) & math.MaxInt32)
}

// What comes before the records: the length of it all, which a produce request wants in front of the batch, and the
// header of a record batch, version 2.
const (
	lengthSize = 4
	headerSize = 61
	prefixSize = lengthSize + headerSize
)

// Positions within the header.
const (
	atBatchLength     = 8
	atLeaderEpoch     = 12
	atMagic           = 16
	atCRC             = 17
	atAttributes      = 21 // from here on the CRC counts
	atLastOffsetDelta = 23
	atFirstTime       = 27
	atMaxTime         = 35
	atProducer        = 43
	atEpoch           = 51
	atSequence        = 53
	atCount           = 57
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// batch is one record batch: growing while records are added, then sealed. Sealed bytes never change, so a batch that is
// sent again is the same batch to the broker.
type batch struct {
	buf      []byte // prefixSize bytes, then the records
	packed   []byte // the same, compressed; memory that is kept
	wire     []byte // buf or packed: what is sent; nil until the batch is sealed
	count    int32
	baseTime int64     // milliseconds, of the first record
	maxTime  int64     // milliseconds, of the youngest record
	first    uint64    // number of the first record; 0 in a batch of nothing but a fence
	records  int       // the caller's
	payload  int       // their bytes, which count against Config.MaxBuffered
	begun    time.Time // when its first record was added
	follows  bool      // another record comes at once
}

// reset empties the batch and keeps its memory.
func (b *batch) reset() {
	var prefix [prefixSize]byte
	*b = batch{buf: append(b.buf[:0], prefix[:]...), packed: b.packed}
}

// size is the batch's length without compression. The broker compares the received length, which is never larger, with max.message.bytes.
func (b *batch) size() int { return len(b.buf) - lengthSize }

// sent is the sealed batch's length as it is sent.
func (b *batch) sent() int { return len(b.wire) - lengthSize }

// add encodes rec at the end, if the batch stays within limit with it. It returns the bytes added, or 0.
func (b *batch) add(rec *schemas.Record, limit int) int {
	at := rec.Time.UnixMilli()
	if b.count == 0 {
		b.baseTime, b.maxTime = at, at
	}
	timeDelta, offsetDelta := at-b.baseTime, int64(b.count)
	size := recordSize(rec, timeDelta, offsetDelta)
	whole := varintSize(int64(size)) + size
	if b.size()+whole > limit {
		return 0
	}
	b.buf = appendRecord(b.buf, rec, size, timeDelta, offsetDelta)
	b.count++
	b.maxTime = max(b.maxTime, at)
	return whole
}

// seal compresses the records, if there is a codec, and writes the header. After it the batch takes no more records.
func (b *batch) seal(codec compress.Codec, s session, base sequence) {
	big := binary.BigEndian
	attributes := uint16(0) // not compressed, time of creation, not transactional
	b.wire = b.buf
	if packed := b.pack(codec); packed != nil {
		b.wire, attributes = packed, uint16(codec.Code())
	}
	big.PutUint32(b.wire, uint32(len(b.wire)-lengthSize))
	h := b.wire[lengthSize:]
	big.PutUint32(h[atBatchLength:], uint32(len(h)-atLeaderEpoch))
	big.PutUint32(h[atLeaderEpoch:], math.MaxUint32) // -1: the broker's to fill in
	h[atMagic] = 2
	big.PutUint16(h[atAttributes:], attributes)
	big.PutUint32(h[atLastOffsetDelta:], uint32(b.count-1))
	big.PutUint64(h[atFirstTime:], uint64(b.baseTime))
	big.PutUint64(h[atMaxTime:], uint64(b.maxTime))
	big.PutUint64(h[atProducer:], uint64(s.producer))
	big.PutUint16(h[atEpoch:], uint16(s.epoch))
	big.PutUint32(h[atSequence:], uint32(base))
	big.PutUint32(h[atCount:], uint32(b.count))
	big.PutUint32(h[atCRC:], crc32.Checksum(h[atAttributes:], castagnoli))
}

// addFenceIfOld adds a fence with the present time if all records of the batch are older than allowed.
//
// A broker forgets a producer by the timestamps of its records, not by its own clock. After a batch of records that are a day old, the broker's next
// check (every ten minutes) drops sequence and epoch. Then it appends a second copy of a batch whose answer was lost, and accepts what a former
// publisher still sends. A publisher that catches up after a long outage sends just such batches. One recent record in each batch prevents that,
// whatever the topic's settings.
func (b *batch) addFenceIfOld(now time.Time, allowed time.Duration, headers []schemas.Header) {
	if now.UnixMilli()-b.maxTime < allowed.Milliseconds() {
		return
	}
	fence := newFence(headers, now)
	b.add(&fence, math.MaxInt) // see Publisher.limit for the room
}
