package replication

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// readBuffer is how much is read from the socket at once. The server makes a send per row, so the speed of a slot depends on how rarely
	// its reader is woken, and that needs space.
	readBuffer = 256 << 10
	// maxMessage is beyond what the server can build (MaxAllocSize, 1 GB). A longer one is damage, not data.
	maxMessage = 1<<30 + 64
	// largeMessage is the size up to which every message is read whole. A longer one is buffered only if its contents are needed; otherwise it is
	// discarded on arrival.
	largeMessage = 1 << 20
	// maxBuffered is the longest message that is buffered at all. No row that is needed is longer.
	maxBuffered = 16 << 20
	// headerSize is a message's type byte and its length.
	headerSize = 5
	// writeTimeout bounds each write. It is generous: the server reads our messages even while it sends.
	writeTimeout = 10 * time.Second
)

var errFrame = errors.New("the length of a message is impossible: the connection does not speak PostgreSQL's protocol")

// wire is the connection's framing, below pgconn while the connection is made, and below the stream after that.
//
// pgconn reads as much as it can get. On the socket itself it would swallow rows that follow the answer to START_REPLICATION into its
// private buffer. So Read gives it one message at a time and keeps the rest, and the stream takes over a wire that has lost nothing.
type wire struct {
	net.Conn

	reading sync.Mutex // pgconn may read from a goroutine of its own; the stream takes the lock once and keeps it
	remain  int        // the rest of the message that Read has begun to hand out

	buf  []byte
	r, w int   // buf[r:w] was received and not used yet
	base int64 // position of buf[0] in the connection
	drop int64 // the number of bytes to come that belong to a skipped message; until then buf[r:w] is empty
}

// attachWire makes config's connection a wire. get returns it once connected.
func attachWire(config *pgconn.Config) (get func() *wire) {
	var last *wire
	config.AfterNetConnect = func(_ context.Context, _ *pgconn.Config, conn net.Conn) (net.Conn, error) {
		last = newWire(conn)
		return last, setTimeouts(conn)
	}
	return func() *wire { return last }
}

func newWire(conn net.Conn) *wire {
	return &wire{Conn: conn, buf: make([]byte, readBuffer)}
}

// Read is for pgconn: it returns at most the rest of one message.
func (w *wire) Read(p []byte) (int, error) {
	w.reading.Lock()
	defer w.reading.Unlock()
	for w.remain == 0 {
		if have := w.buf[w.r:w.w]; len(have) >= headerSize {
			w.remain = 1 + int(binary.BigEndian.Uint32(have[1:]))
			break
		}
		if err := w.fill(); err != nil {
			return 0, err
		}
	}
	if w.r == w.w {
		if err := w.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p[:min(len(p), w.remain)], w.buf[w.r:w.w])
	w.r += n
	w.remain -= n
	return n, nil
}

// takeOver ends pgconn's reading for good, between two messages.
func (w *wire) takeOver() error {
	w.interrupt() // pgconn's background reader may still wait for bytes
	w.reading.Lock()
	if w.remain != 0 {
		return errFrame
	}
	return w.SetReadDeadline(time.Time{})
}

// frame returns the next whole message, type and body, and its position in the connection. ok is false if it is incomplete: then the frame
// has what there is of its body, and is the zero frame if its length is not known yet. The body stays in place until fill is called; skip
// moves past it.
func (w *wire) frame() (f frame, ok bool, err error) {
	return w.frameAt(w.base + int64(w.r))
}

// frameAt is frame for a later message, which begins at position at.
func (w *wire) frameAt(at int64) (f frame, ok bool, err error) {
	have := w.buf[int(at-w.base):w.w]
	if len(have) < headerSize {
		return frame{}, false, nil
	}
	size := binary.BigEndian.Uint32(have[1:])
	if size < headerSize-1 || size > maxMessage {
		return frame{}, false, errFrame
	}
	end := 1 + int(size)
	there := min(end, len(have))
	f = frame{kind: have[0], body: have[headerSize:there:there], start: at, end: at + int64(end)}
	return f, there == end, nil
}

// frame is one message of PostgreSQL's frontend/backend protocol.
type frame struct {
	kind       byte
	body       []byte
	start, end int64 // its place in the connection
	headOnly   bool  // the body is only the head of a change; the rest is not needed
}

// size is the length of the whole message, however much of it has arrived.
func (f frame) size() int64 { return f.end - f.start }

// skip moves past a message. fill discards the part that has not arrived, in the buffer's usual size.
func (w *wire) skip(f frame) {
	if have := w.base + int64(w.w); f.end > have {
		w.r, w.drop = w.w, f.end-have
		return
	}
	w.r = int(f.end - w.base)
}

// end is the position in the connection up to which bytes have arrived.
func (w *wire) end() int64 { return w.base + int64(w.w) }

// room reports whether fill may read ahead without making the buffer larger than limit.
func (w *wire) room(limit int) bool { return w.w-w.r < limit }

// fill reads once, whatever there is, or waits for bytes until the read deadline. It moves unused bytes to the front of the buffer, so
// bodies of frames become invalid. The buffer doubles while a message, or what Wait reads ahead, does not fit, and returns to its usual
// size when it is empty.
func (w *wire) fill() error {
	w.base += int64(w.r)
	w.w = copy(w.buf, w.buf[w.r:w.w])
	w.r = 0
	if w.w == 0 && len(w.buf) > readBuffer {
		w.buf = make([]byte, readBuffer)
	}
	if w.w == len(w.buf) {
		grown := make([]byte, 2*len(w.buf))
		copy(grown, w.buf)
		w.buf = grown
	}
	n, err := w.Conn.Read(w.buf[w.w:])
	w.w += n
	if w.drop > 0 {
		dropped := int(min(w.drop, int64(n)))
		w.r += dropped
		w.drop -= int64(dropped)
	}
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// interrupt interrupts a waiting read, or the next one. A read that is interrupted without reason reads again.
func (w *wire) interrupt() { _ = w.SetReadDeadline(time.Unix(1, 0)) }

// send writes a whole message, or fails: half a message ends the connection.
func (w *wire) send(message []byte) error {
	if err := w.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	_, err := w.Write(message)
	return err
}

func isTimeout(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded)
}
