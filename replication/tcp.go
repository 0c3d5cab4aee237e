package replication

import (
	"crypto/tls"
	"fmt"
	"net"
	"time"
)

const (
	// peerTimeout is the time after which a machine that disappeared (no power, no network) is given up. Without it an idle stream would wait for
	// hours.
	peerTimeout = time.Minute
	peerProbes  = 3
)

// setTimeouts makes the kernel notice a machine that disappeared, which no message announces. Connections within this machine do not need it.
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
