package replication

import (
	"bytes"
	"encoding/binary"

	"lapse/schemas"
)

// cursor reads one message and never beyond it. A read past the end returns zero and sets short. The caller checks short once, after its last read,
// and inside every loop whose length came from the wire.
type cursor struct {
	rest  []byte
	short bool
}

func (c *cursor) take(n int) []byte {
	if n < 0 || n > len(c.rest) {
		c.rest, c.short = nil, true
		return nil
	}
	taken := c.rest[:n:n]
	c.rest = c.rest[n:]
	return taken
}

func (c *cursor) byte() byte {
	b := c.take(1)
	if b == nil {
		return 0
	}
	return b[0]
}

func (c *cursor) uint16() uint16 {
	b := c.take(2)
	if b == nil {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}

func (c *cursor) uint32() uint32 {
	b := c.take(4)
	if b == nil {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

func (c *cursor) uint64() uint64 {
	b := c.take(8)
	if b == nil {
		return 0
	}
	return binary.BigEndian.Uint64(b)
}

func (c *cursor) lsn() schemas.LSN { return schemas.LSN(c.uint64()) }

// text reads a string that ends with a zero byte.
func (c *cursor) text() []byte {
	end := bytes.IndexByte(c.rest, 0)
	if end < 0 {
		c.rest, c.short = nil, true
		return nil
	}
	taken := c.take(end + 1)
	return taken[:end]
}
