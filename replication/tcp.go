package replication

import (
	"crypto/tls"
	"fmt"
	"net"
	"time"
)

const (
	// hostTimeout is after how long a machine that is simply gone (no power, no network) is given up. Without it an
	// idle stream would wait for it for hours.
	hostTimeout = time.Minute
	hostProbes  = 3
)

// watchHost has the kernel notice a machine that is gone, which no message will ever tell. Connections that do not leave
// this machine need none of it.
func watchHost(conn net.Conn) error {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return nil
	}
	pause := hostTimeout / (hostProbes + 1)
	err := tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: pause, Interval: pause, Count: hostProbes})
	if err != nil {
		return fmt.Errorf("set TCP keepalive: %w", err)
	}
	if err := setUserTimeout(tcp, hostTimeout); err != nil {
		return fmt.Errorf("set TCP user timeout: %w", err)
	}
	return nil
}
