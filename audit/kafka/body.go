package kafka

import (
	"io"
	"sync"
)

// body hands the bytes of a sealed batch to kafka-go for one attempt.
//
// kafka-go copies them in a goroutine of its connection, possibly after the attempt was given up. By then the batch may
// be acknowledged through another attempt, and its memory may hold another batch, for another partition. So an attempt
// closes its body when it ends, and a closed body gives nothing.
type body struct {
	mu    sync.Mutex
	bytes []byte // nil when closed
}

// WriteTo copies all bytes at once.
func (b *body) WriteTo(dst io.Writer) (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bytes == nil {
		return 0, io.ErrClosedPipe
	}
	n, err := dst.Write(b.bytes)
	return int64(n), err
}

// Read is here because kafka-go wants an io.Reader; io.Copy prefers WriteTo.
func (b *body) Read([]byte) (int, error) { return 0, io.ErrNoProgress }

// close waits for a copy under way and prevents any other.
func (b *body) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes = nil
}
