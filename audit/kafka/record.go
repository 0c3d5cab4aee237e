package kafka

import (
	"encoding/binary"
	"math/bits"
	"time"

	"lapse/schemas"
)

// fenceKey lets fences live in a compacted topic, which takes no record without key. A JSON string: the keys of events
// are JSON objects.
var fenceKey = []byte(`"lapse-fence"`)

// noOffset is the offset of no record.
const noOffset = -1

func newFence(headers []schemas.Header, at time.Time) schemas.Record {
	all := append([]schemas.Header{{Key: schemas.HeaderOp, Value: []byte(schemas.OpFence)}}, headers...)
	return schemas.Record{Key: fenceKey, Headers: all, Time: at}
}

// recordSize is the length of a record's body in a batch, without the length field in front of it.
func recordSize(rec *schemas.Record, timeDelta, offsetDelta int64) int {
	n := 1 + varintSize(timeDelta) + varintSize(offsetDelta) // 1: the attributes, unused
	n += bytesSize(rec.Key) + bytesSize(rec.Value) + varintSize(int64(len(rec.Headers)))
	for i := range rec.Headers {
		h := &rec.Headers[i]
		n += varintSize(int64(len(h.Key))) + len(h.Key) + bytesSize(h.Value)
	}
	return n
}

// appendRecord writes one record of a record batch, version 2: size is what recordSize says.
func appendRecord(dst []byte, rec *schemas.Record, size int, timeDelta, offsetDelta int64) []byte {
	dst = binary.AppendVarint(dst, int64(size))
	dst = append(dst, 0)
	dst = binary.AppendVarint(dst, timeDelta)
	dst = binary.AppendVarint(dst, offsetDelta)
	dst = appendBytes(dst, rec.Key)
	dst = appendBytes(dst, rec.Value)
	dst = binary.AppendVarint(dst, int64(len(rec.Headers)))
	for i := range rec.Headers {
		h := &rec.Headers[i]
		dst = binary.AppendVarint(dst, int64(len(h.Key)))
		dst = append(dst, h.Key...)
		dst = appendBytes(dst, h.Value)
	}
	return dst
}

// appendBytes writes a length, -1 for nil, and the bytes.
func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	return append(binary.AppendVarint(dst, int64(len(b))), b...)
}

func bytesSize(b []byte) int {
	if b == nil {
		return 1
	}
	return varintSize(int64(len(b))) + len(b)
}

// varintSize is how many bytes binary.AppendVarint writes: seven bits of the zigzag value in each.
func varintSize(v int64) int {
	zigzag := uint64(v<<1) ^ uint64(v>>63)
	return (bits.Len64(zigzag|1) + 6) / 7
}
