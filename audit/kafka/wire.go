package kafka

import (
	"io"
	"sync"
)

// wire lends a sealed batch's bytes to kafka-go for one attempt.
//
// kafka-go copies them in a goroutine of its connection, and a request that was given up may get there only afterwards.
// By then the batch may be acknowledged through another attempt and its memory may hold another batch: valid bytes, for
// another partition. So the loan ends with the attempt.
type wire struct {
	mu    sync.Mutex
	bytes []byte // nil once withdrawn
}

// WriteTo copies the bytes in one piece.
func (w *wire) WriteTo(dst io.Writer) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.bytes == nil {
		return 0, io.ErrClosedPipe
	}
	n, err := dst.Write(w.bytes)
	return int64(n), err
}

// Read is here because kafka-go wants an io.Reader; io.Copy prefers WriteTo.
func (w *wire) Read([]byte) (int, error) { return 0, io.ErrNoProgress }

// withdraw waits for a copy under way and prevents any other.
func (w *wire) withdraw() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes = nil
}
