package replication

import (
	"net"
	"testing"
)

// closedConn is a connection for code that only closes it.
func closedConn(t *testing.T) net.Conn {
	t.Helper()
	here, there := net.Pipe()
	_ = there.Close()
	t.Cleanup(func() { _ = here.Close() })
	return here
}
