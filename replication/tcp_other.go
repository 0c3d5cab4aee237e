//go:build !linux

package replication

import (
	"net"
	"time"
)

// setUserTimeout is for Linux only. Elsewhere the system's own limit for what stays unacknowledged holds.
func setUserTimeout(*net.TCPConn, time.Duration) error { return nil }
