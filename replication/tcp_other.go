//go:build !linux

package replication

import (
	"net"
	"time"
)

// setUserTimeout exists only on Linux. Elsewhere the system's own limit for unacknowledged data applies.
func setUserTimeout(*net.TCPConn, time.Duration) error { return nil }
