package child

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
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
// process of this user: a server that is down for a moment keeps its port.
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

// reserved are the ports that this process has been given. The byte of that number in a file has a lock of it, which the kernel
// takes away when the process ends.
var reserved struct {
	sync.Mutex
	ports map[int]bool
	file  *os.File
}

// reserve says whether the port is now this caller's.
func reserve(port int) (ours bool, err error) {
	reserved.Lock()
	defer reserved.Unlock()
	if reserved.file == nil {
		path := filepath.Join(os.TempDir(), fmt.Sprintf("lapse-ports-%d", os.Getuid()))
		if reserved.file, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600); err != nil {
			return false, err
		}
		reserved.ports = map[int]bool{}
	}
	if reserved.ports[port] {
		return false, nil
	}
	lock := syscall.Flock_t{Type: syscall.F_WRLCK, Whence: io.SeekStart, Start: int64(port), Len: 1}
	err = syscall.FcntlFlock(reserved.file.Fd(), syscall.F_SETLK, &lock)
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) {
		return false, nil
	}
	reserved.ports[port] = err == nil
	return err == nil, err
}
