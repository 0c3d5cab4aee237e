package replication

import (
	"crypto/tls"
	"fmt"
	"net"
	"time"
)

const (
	// peerTimeout is after how long a machine that is simply gone (no power, no network) is given up. Without it an
	// idle stream would wait for it for hours.
	peerTimeout = time.Minute
	peerProbes  = 3
)

// setTimeouts has the kernel notice a machine that is gone, which no message will ever tell. Connections that do not leave
// this machine need none of it.
func setTimeouts(conn net.Conn) error {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	pause := peerTimeout / (peerProbes + 1)
	err := tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: pause, Interval: pause, Count: peerProbes})
	if err != nil {
		return fmt.Errorf("set TCP keepalive: %w", err)
	}
	if err := setUserTimeout(tcp, peerTimeout); err != nil {
		return fmt.Errorf("set TCP user timeout: %w", err)
	}
	return nil
}
