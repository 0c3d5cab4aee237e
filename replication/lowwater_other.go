package replication

import "net"

type lowWater struct{}

func newLowWater(net.Conn) *lowWater { return &lowWater{} }
func (l *lowWater) start()           {}
func (l *lowWater) read(conn net.Conn, p []byte) (int, error) {
	return conn.Read(p)
}
