package kafka_test

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
)

// fate is what happens to one produce request on its way.
type fate int

const (
	pass       fate = iota
	lose            // the request does not arrive
	cut             // half of it arrives
	loseAnswer      // it arrives and is carried out; the answer does not come back
	hold            // it waits until network.release, then passes
)

// network stands between a publisher and real brokers. It loses what it is told to lose, and nothing else.
type network struct {
	mu      sync.Mutex
	decide  func(n int) fate // for the n-th produce request, from 1; nil means pass
	seen    int
	held    chan struct{} // closed when a request is first held
	release chan struct{} // closed by let
}

func newNetwork(decide func(n int) fate) *network {
	return &network{decide: decide, held: make(chan struct{}), release: make(chan struct{})}
}

// from now on decide decides, and counts from 1. A test that is not about opening says so after Open: a fence may take more
// than one request, if the topic was made a moment ago.
func (n *network) from(decide func(n int) fate) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.decide, n.seen = decide, 0
}

// requests is how many produce requests there were since from.
func (n *network) requests() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.seen
}

func always(f fate) func(int) fate { return func(int) fate { return f } }

// let lets go of what is held, and of what would be.
func (n *network) let() { close(n.release) }

func (n *network) dial(ctx context.Context, netw, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, netw, addr)
	if err != nil {
		return nil, err
	}
	return &networkConn{Conn: conn, net: n, closed: make(chan struct{})}, nil
}

func (n *network) fate() fate {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen++
	if n.decide == nil {
		return pass
	}
	f := n.decide(n.seen)
	if f == hold {
		select {
		case <-n.held:
		default:
			close(n.held)
		}
	}
	return f
}

// networkConn carries one request at a time, as kafka-go's connections do. A request may come in several writes.
type networkConn struct {
	net.Conn
	net      *network
	left     int // bytes of the request under way that are still to be written
	fate     fate
	swallows bool
	once     sync.Once
	closed   chan struct{}
}

func (c *networkConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

var errLost = errors.New("lost on the way")

const produceKey = 0

func (c *networkConn) Write(p []byte) (int, error) {
	if c.left == 0 { // a request begins: its size, then its kind
		c.left = 4 + int(binary.BigEndian.Uint32(p))
		c.fate = pass
		if binary.BigEndian.Uint16(p[4:]) == produceKey {
			c.fate = c.net.fate()
		}
	}
	switch c.fate {
	case lose:
		return 0, errors.Join(errLost, c.Close())
	case cut:
		n, _ := c.Conn.Write(p[:len(p)/2])
		return n, errors.Join(errLost, c.Close())
	case hold:
		select {
		case <-c.net.release:
		case <-c.closed:
			return 0, net.ErrClosed
		}
	case loseAnswer:
		c.swallows = true
	}
	n, err := c.Conn.Write(p)
	c.left -= n
	return n, err
}

// Read waits for the answer before it loses it: then the request was carried out.
func (c *networkConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.swallows && err == nil {
		return 0, errors.Join(io.ErrUnexpectedEOF, c.Close())
	}
	return n, err
}
