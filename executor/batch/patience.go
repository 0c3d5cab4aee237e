package batch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// answerTime is how long a session waits for the server's answer. It is longer than every statement_timeout of a session: a server
// that is up answers first.
const answerTime = 20 * time.Second

// silentError says that no answer came in time. pgx closes the connection.
type silentError struct{ after time.Duration }

func (e *silentError) Error() string {
	return fmt.Sprintf("the server did not answer for %s", e.after)
}

// errCommitting keeps pgx from its cancel request; see session.committing.
var errCommitting = errors.New("no cancel request is sent while a COMMIT is not answered")

// dialer makes connections that wait at most bound for each answer, whatever the session sends.
func (s *Session) dialer(dial pgconn.DialFunc, bound time.Duration) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if s.committing.Load() {
			return nil, errCommitting
		}
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &boundedConn{Conn: conn, bound: bound}, nil
	}
}

// boundedConn ends a read or write if no byte arrives within bound. A deadline that pgx set counts instead of bound: pgx sets one
// when a context ends. pgx reads only while it waits for an answer.
type boundedConn struct {
	net.Conn
	bound time.Duration

	mu          sync.Mutex
	read, write time.Time // the deadlines that were set; zero: none
}

func (c *boundedConn) Read(p []byte) (int, error) {
	if err := c.arm(&c.read, c.Conn.SetReadDeadline); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(p)
	return n, c.explain(&c.read, err)
}

func (c *boundedConn) Write(p []byte) (int, error) {
	if err := c.arm(&c.write, c.Conn.SetWriteDeadline); err != nil {
		return 0, err
	}
	n, err := c.Conn.Write(p)
	return n, c.explain(&c.write, err)
}

// arm bounds the next read or write unless pgx set a deadline.
func (c *boundedConn) arm(deadline *time.Time, set func(time.Time) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if deadline.IsZero() {
		return set(time.Now().Add(c.bound))
	}
	return nil
}

// explain returns a silentError if bound passed, not a deadline that pgx set. silentError is no timeout to pgx, which would continue
// after a timeout.
func (c *boundedConn) explain(deadline *time.Time, err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(err, os.ErrDeadlineExceeded) && deadline.IsZero() {
		return &silentError{c.bound}
	}
	return err
}

func (c *boundedConn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read, c.write = t, t
	return c.Conn.SetDeadline(t)
}

func (c *boundedConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = t
	return c.Conn.SetReadDeadline(t)
}

func (c *boundedConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.write = t
	return c.Conn.SetWriteDeadline(t)
}
