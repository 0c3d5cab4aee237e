package child

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// Ports for servers lie below the range from which Linux takes the local ports of outgoing connections: a server that is
// down for a moment finds its port free when it comes back.
const (
	firstPort = 12000
	lastPort  = 32000
)

// FreePort finds a TCP port on 127.0.0.1 that nobody listens on. Nothing reserves it.
func FreePort() (int, error) {
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if PortIsFree(port) {
			return port, nil
		}
	}
	return 0, errors.New("find a free port: 100 tries failed")
}

// PortIsFree says whether a server could listen on the port of 127.0.0.1.
func PortIsFree(port int) bool {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)) //nolint:noctx // It waits for nothing.
	if err != nil {
		return false
	}
	return listener.Close() == nil
}
