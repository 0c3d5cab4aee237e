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
	// readBuffer is how much is asked of the socket at once. The server makes a send per row; what decides the speed
	// of a slot is how rarely its reader is woken, and that needs room.
	readBuffer = 256 << 10
	// maxMessage is beyond what the server can build (MaxAllocSize, 1 GB). A longer one is damage, not data.
	maxMessage = 1<<30 + 64
	// largeMessage is what is read whole without a question. What is longer is buffered only if somebody wants what is
	// in it; else it is thrown away as it comes in.
	largeMessage = 1 << 20
	// maxBuffered is the longest message that is buffered at all. No row that anybody wants is so long.
	maxBuffered = 16 << 20
	// headerSize is a message's type byte and its length.
	headerSize = 5
	// writeTimeout bounds each write. The server reads what we send even while it sends, so this is generous.
	writeTimeout = 10 * time.Second
)

var errFrame = errors.New("the length of a message is impossible: the connection does not speak PostgreSQL's protocol")

// wire is the connection's framing, below pgconn while the connection is made and below the stream after that.
//
// pgconn reads as much as it gets. If it did so on the socket, rows that follow the answer to START_REPLICATION would
// end in its private buffer. So Read gives it one message at a time and keeps the rest, and the stream takes over a
// wire that has lost nothing.
type wire struct {
	net.Conn

	reading sync.Mutex // pgconn may read from a goroutine of its own; the stream takes the lock once, for good
	remain  int        // what Read has still to hand out of the message that it began

	buf  []byte
	r, w int   // buf[r:w] has been received and not used
	base int64 // position of buf[0] in the connection
	drop int64 // so many bytes that are still to come belong to a message that was skipped; buf[r:w] is empty until then
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

// Read is pgconn's: at most the rest of one message.
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

// frame returns the next whole message, type and body, and its position in the connection, or ok false if it is not
// all there: the frame has then what there is of its body, and is the zero frame as long as its length is not known. The
// body stays in place until fill is called; skip moves past it.
func (w *wire) frame() (f frame, ok bool, err error) {
	return w.frameAt(w.base + int64(w.r))
}

// frameAt is frame for a message further on, which must have begun at position at.
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
	headOnly   bool  // the body is no more than the head of a change; the rest is not wanted
}

// size is the whole message's, however much of it is there.
func (f frame) size() int64 { return f.end - f.start }

// skip moves past a message. What of it is still to come is thrown away by fill, in the buffer's usual size.
func (w *wire) skip(f frame) {
	if have := w.base + int64(w.w); f.end > have {
		w.r, w.drop = w.w, f.end-have
		return
	}
	w.r = int(f.end - w.base)
}

// end is the position in the connection up to which bytes have come.
func (w *wire) end() int64 { return w.base + int64(w.w) }

// room says whether fill may keep reading ahead without making the buffer larger than limit.
func (w *wire) room(limit int) bool { return w.w-w.r < limit }

// fill reads once, whatever there is, or waits for it until the read deadline. It moves what is there to the front of the
// buffer, so bodies of frames are not valid after it. The buffer doubles while a message, or what Wait reads ahead, does
// not fit, and goes back to its usual size when it is empty.
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

// interrupt interrupts a read that waits, or the one that comes next. Who is interrupted for nothing reads again.
func (w *wire) interrupt() { _ = w.SetReadDeadline(time.Unix(1, 0)) }

// send writes a message of ours whole, or fails: half a message ends the connection.
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
