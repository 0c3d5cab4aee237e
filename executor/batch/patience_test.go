package batch

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

func TestAReadWithoutAnAnswerEndsAtItsBoundUnlessADeadlineWasSet(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	defer func() { _ = theirs.Close() }()
	c := &boundedConn{Conn: ours, bound: 20 * time.Millisecond}
	defer func() { _ = c.Close() }()
	var silent *silentError
	var timeout net.Error
	_, err := c.Read(make([]byte, 1))
	if !errors.As(err, &silent) || errors.As(err, &timeout) {
		t.Errorf("a read ended with %v", err)
	}
	if _, err := c.Write([]byte("x")); !errors.As(err, &silent) {
		t.Errorf("a write ended with %v", err)
	}
	if err := c.SetDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("after a deadline a read ended with %v", err)
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.WriteString(theirs, "x") }()
	if n, err := c.Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("an answer was read as %d, %v", n, err)
	}
}
