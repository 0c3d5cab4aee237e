package replication

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"
)

const (
	// lowWaterMark is how much is waited for while a stream flows.
	lowWaterMark = 128 << 10
	// lowWaterWait is how long, at most. It is what a message may be delayed.
	lowWaterWait = 2 * time.Millisecond
	// flowPause is the longest pause between two reads of a stream that flows.
	flowPause = time.Millisecond
	// hostTimeout is how long a machine that is gone is not noticed.
	hostTimeout    = time.Minute
	tcpUserTimeout = 0x12
)

// lowWater reads a TCP socket rarely and much. The server makes a send per row, and each that finds a reader waiting
// wakes it, which costs the server more than the row. So while a stream flows the kernel wakes us only when much has
// come (SO_RCVLOWAT), or when lowWaterWait is over; a stream that stands still is read byte by byte as it comes.
type lowWater struct {
	conn   *net.TCPConn // nil: read as it comes
	raw    syscall.RawConn
	flows  bool
	setTo  int
	readAt time.Time
}

func newLowWater(conn net.Conn) *lowWater {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return &lowWater{}
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return &lowWater{}
	}
	return &lowWater{conn: tcp, raw: raw, setTo: 1}
}

func (l *lowWater) read(conn net.Conn, p []byte) (int, error) {
	if l.conn == nil {
		return conn.Read(p)
	}
	if !l.flows {
		l.mark(1)
		n, err := conn.Read(p)
		now := time.Now()
		l.flows = n > 0 && now.Sub(l.readAt) < flowPause
		l.readAt = now
		return n, err
	}
	l.mark(min(lowWaterMark, len(p)))
	// This may undo an interruption that came this moment; it is looked for again after the wait.
	if err := l.conn.SetReadDeadline(time.Now().Add(lowWaterWait)); err != nil {
		return 0, err
	}
	n, err := l.await(p, true)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if err := l.conn.SetReadDeadline(time.Time{}); err != nil {
			return 0, err
		}
		n, err = l.await(p, false)
	}
	if n == 0 && err == nil {
		l.flows = false
		return 0, os.ErrDeadlineExceeded
	}
	l.readAt = time.Now()
	return n, err
}

// await reads what there is, after waiting for the low-water mark if wait is set.
func (l *lowWater) await(p []byte, wait bool) (n int, err error) {
	waitErr := l.raw.Read(func(fd uintptr) bool {
		if wait {
			wait = false
			return false
		}
		for {
			n, err = syscall.Read(int(fd), p)
			if err != syscall.EINTR {
				break
			}
		}
		if n < 0 {
			n = 0
		}
		if err == syscall.EAGAIN {
			err = nil
			return true
		}
		if err == nil && n == 0 {
			err = io.EOF
		}
		return true
	})
	if waitErr != nil {
		return 0, waitErr
	}
	return n, err
}

// mark sets the low-water mark. A kernel that refuses it only costs speed.
func (l *lowWater) mark(bytes int) {
	if bytes == l.setTo {
		return
	}
	l.setTo = bytes
	_ = l.raw.Control(func(fd uintptr) {
		_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, bytes)
	})
}
