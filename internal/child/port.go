package child

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
)

// Ports for servers lie below the range from which Linux takes the local ports of outgoing connections: a server that is
// down for a moment finds its port free when it comes back.
const (
	firstPort = 12000
	lastPort  = 32000
)

// FreePort finds a TCP port on 127.0.0.1 that nobody listens on. Until this process ends FreePort gives it to nobody else, in no
// process: a server that is down for a moment keeps its port.
func FreePort() (int, error) {
	for range 100 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		ours, err := reserve(port)
		if err != nil {
			return 0, fmt.Errorf("find a free port: %w", err)
		}
		if ours && PortIsFree(port) {
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

// reserved are the ports that this process has been given, each with an abstract Unix socket of that number. It is in no folder, one
// process can have it, and the kernel takes it away when that process ends.
var reserved struct {
	sync.Mutex
	ports map[int]net.Listener
}

// reserve says whether the port is now this caller's.
func reserve(port int) (ours bool, err error) {
	reserved.Lock()
	defer reserved.Unlock()
	if reserved.ports[port] != nil {
		return false, nil
	}
	listener, err := net.Listen("unix", fmt.Sprintf("@lapse-port-%d", port)) //nolint:noctx // It waits for nothing.
	if errors.Is(err, syscall.EADDRINUSE) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if reserved.ports == nil {
		reserved.ports = map[int]net.Listener{}
	}
	reserved.ports[port] = listener
	return true, nil
}
