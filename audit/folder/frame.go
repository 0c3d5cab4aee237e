package folder

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"time"

	"lapse/schemas"
)

// A record in a segment:
//
//	length  4 bytes   of the body
//	CRC-32C 4 bytes   of length and body
//	body              offset, epoch, time in milliseconds, key, value, headers; numbers are varints
const (
	frameHead = 8
	// maxBody bounds what a broken length makes a reader allocate: no record of the audit is near it.
	maxBody = 4 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var (
	errShort  = errors.New("the bytes end within a record")
	errBroken = errors.New("the bytes are no record")
)

// stored is a record as a segment has it.
type stored struct {
	rec    schemas.Record
	offset int64
	epoch  int32
}

// appendFrame writes a record behind dst.
func appendFrame(dst []byte, rec *schemas.Record, offset int64, epoch int32) []byte {
	begin := len(dst)
	dst = append(dst, make([]byte, frameHead)...)
	dst = binary.AppendUvarint(dst, uint64(offset))
	dst = binary.AppendUvarint(dst, uint64(epoch))
	dst = binary.AppendVarint(dst, rec.Time.UnixMilli())
	dst = appendBytes(dst, rec.Key)
	dst = appendBytes(dst, rec.Value)
	dst = binary.AppendUvarint(dst, uint64(len(rec.Headers)))
	for i := range rec.Headers {
		dst = appendBytes(dst, []byte(rec.Headers[i].Key))
		dst = appendBytes(dst, rec.Headers[i].Value)
	}
	frame := dst[begin:]
	binary.LittleEndian.PutUint32(frame, uint32(len(frame)-frameHead))
	binary.LittleEndian.PutUint32(frame[4:], checksum(frame))
	return dst
}

// checksum is the CRC of a frame: of its length and its body.
func checksum(frame []byte) uint32 {
	return crc32.Update(crc32.Checksum(frame[:4], castagnoli), castagnoli, frame[frameHead:])
}

// appendBytes writes a length, one more than it is so that 0 is nil, and the bytes.
func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 0)
	}
	return append(binary.AppendUvarint(dst, uint64(len(b))+1), b...)
}

// cutFrame cuts the first frame from b. errShort says that b ends within it, errBroken that it is none.
func cutFrame(b []byte) (frame, rest []byte, err error) {
	if len(b) < frameHead {
		return nil, b, errShort
	}
	length := binary.LittleEndian.Uint32(b)
	if length == 0 || length > maxBody {
		return nil, b, errBroken
	}
	end := frameHead + int(length)
	if len(b) < end {
		return nil, b, errShort
	}
	if frame = b[:end]; binary.LittleEndian.Uint32(frame[4:]) != checksum(frame) {
		return nil, b, errBroken
	}
	return frame, b[end:], nil
}

// offsetOf is the offset in a frame that was cut.
func offsetOf(frame []byte) (int64, error) {
	offset, n := binary.Uvarint(frame[frameHead:])
	if n <= 0 || offset > math.MaxInt64 {
		return 0, errBroken
	}
	return int64(offset), nil
}

// decode reads a frame that was cut. Its memory is not the frame's.
func decode(frame []byte, topic string, partition int32) (s stored, err error) {
	d := decoder{rest: append([]byte(nil), frame[frameHead:]...)}
	s.offset, s.epoch = int64(d.uvarint()), int32(d.uvarint())
	s.rec = schemas.Record{Topic: topic, Partition: partition, Time: time.UnixMilli(d.varint()).UTC()}
	s.rec.Key, s.rec.Value = d.bytes(), d.bytes()
	n := d.uvarint()
	if n > uint64(len(d.rest)) {
		return s, errBroken
	}
	s.rec.Headers = make([]schemas.Header, n)
	for i := range s.rec.Headers {
		s.rec.Headers[i] = schemas.Header{Key: string(d.bytes()), Value: d.bytes()}
	}
	if d.broken || len(d.rest) > 0 {
		return s, errBroken
	}
	return s, nil
}

// decoder reads a body. After the first thing that is not there it reads nothing.
type decoder struct {
	rest   []byte
	broken bool
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.rest)
	d.take(n)
	return v
}

func (d *decoder) varint() int64 {
	v, n := binary.Varint(d.rest)
	d.take(n)
	return v
}

func (d *decoder) take(n int) {
	if n <= 0 {
		d.broken, d.rest = true, nil
		return
	}
	d.rest = d.rest[n:]
}

func (d *decoder) bytes() []byte {
	length := d.uvarint()
	switch {
	case length == 0:
		return nil
	case length-1 > uint64(len(d.rest)):
		d.broken, d.rest = true, nil
		return nil
	}
	b := d.rest[: length-1 : length-1]
	d.rest = d.rest[length-1:]
	return b
}
