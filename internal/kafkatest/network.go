package kafkatest

import (
	"context"
	wire "encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Fate is what happens to one produce request on its way, or to its answer.
type Fate int32

// The fates. With the last six the request is carried out.
const (
	Pass       Fate = iota
	Lose            // the request does not arrive
	Cut             // half of it arrives
	Hold            // it waits until Network.Let, then passes
	Slow            // it passes after a moment
	LoseAnswer      // the answer does not come back
	CutAnswer       // half of the answer comes back
	SlowAnswer      // the answer comes back after a moment
	LateAnswer      // it comes back when another produce request has been sent: the one that is sent because none came back
	Twice           // the request arrives twice, and two answers come back
)

// Network sits between a publisher and real brokers: its Dial is for kafka.Config. It does to produce requests what it is
// told, and nothing to others. Safe for concurrent use.
type Network struct {
	mu      sync.Mutex
	decide  func(n int) Fate
	moment  func() time.Duration
	seen    int
	another chan struct{} // closed and replaced with each request
	held    chan struct{} // closed when a request is first held
	release chan struct{} // closed by Let
}

// NewNetwork makes a network. decide says the fate of the n-th produce request, from 1; nil means Pass.
func NewNetwork(decide func(n int) Fate) *Network {
	return &Network{
		decide: decide, moment: func() time.Duration { return 50 * time.Millisecond },
		another: make(chan struct{}), held: make(chan struct{}), release: make(chan struct{}),
	}
}

// NewBadNetwork makes a network in which one produce request of ten or so has one of the fates. The same seed gives the
// same fates; which request has which depends on the order in which they are sent.
func NewBadNetwork(seed int64, fates ...Fate) *Network {
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	n := NewNetwork(func(int) Fate {
		if random.IntN(10) > 0 {
			return Pass
		}
		return fates[random.IntN(len(fates))]
	})
	n.moment = func() time.Duration { return time.Duration(random.Int64N(int64(200 * time.Millisecond))) }
	return n
}

// From now on decide decides, and counts from 1. A test that is not about opening says so after Open: a fence may take more
// than one request, if the topic was made a moment ago.
func (n *Network) From(decide func(n int) Fate) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.decide, n.seen = decide, 0
}

// Requests is how many produce requests there were since From.
func (n *Network) Requests() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.seen
}

// Always is a decision for From.
func Always(f Fate) func(int) Fate { return func(int) Fate { return f } }

// Held is closed when a request is first held.
func (n *Network) Held() <-chan struct{} { return n.held }

// Let lets go of what is held, and of what would be.
func (n *Network) Let() { close(n.release) }

// Dial connects through the network.
func (n *Network) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &networkConn{Conn: conn, net: n, closed: make(chan struct{})}, nil
}

// request counts a produce request. Waiting is for SlowAnswer and Slow, another for LateAnswer.
func (n *Network) request() (f Fate, moment time.Duration, another <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.seen++
	close(n.another)
	n.another = make(chan struct{})
	if n.decide == nil {
		return Pass, 0, n.another
	}
	f = n.decide(n.seen)
	if f == Hold {
		select {
		case <-n.held:
		default:
			close(n.held)
		}
	}
	return f, n.moment(), n.another
}

// networkConn carries one request at a time, as kafka-go's connections do. A request may come in several writes.
type networkConn struct {
	net.Conn
	net    *Network
	once   sync.Once
	closed chan struct{}

	// Of the goroutine that writes.
	left int    // bytes of the request under way that are still to be written
	copy []byte // of a request that is to arrive twice

	// Set when a request begins.
	fate    atomic.Int32
	moment  atomic.Int64
	another atomic.Pointer[<-chan struct{}]

	broken bool // of the goroutine that reads: half of an answer was handed out
}

// Close implements net.Conn.
func (c *networkConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

var errLost = errors.New("lost on the way")

const produceKey = 0

// Write implements net.Conn.
func (c *networkConn) Write(p []byte) (int, error) {
	if c.left == 0 { // a request begins: its size, then its kind
		c.begin(p)
	}
	switch Fate(c.fate.Load()) {
	case Lose:
		return 0, errors.Join(errLost, c.Close())
	case Cut:
		n, _ := c.Conn.Write(p[:len(p)/2])
		return n, errors.Join(errLost, c.Close())
	case Hold:
		if !c.wait(c.net.release, nil) {
			return 0, net.ErrClosed
		}
	case Slow:
		c.wait(nil, time.After(time.Duration(c.moment.Swap(0))))
	case Twice:
		c.copy = append(c.copy, p...)
	}
	n, err := c.Conn.Write(p)
	c.left -= n
	if c.left == 0 && len(c.copy) > 0 && err == nil {
		_, err = c.Conn.Write(c.copy)
		c.copy = c.copy[:0]
	}
	return n, err
}

func (c *networkConn) begin(p []byte) {
	c.left, c.copy = 4+int(wire.BigEndian.Uint32(p)), c.copy[:0]
	c.fate.Store(int32(Pass))
	if wire.BigEndian.Uint16(p[4:]) == produceKey {
		f, moment, another := c.net.request()
		c.moment.Store(int64(moment))
		c.another.Store(&another)
		c.fate.Store(int32(f))
	}
}

// wait waits for one of both, and says whether it came before the connection was closed.
func (c *networkConn) wait(event <-chan struct{}, timer <-chan time.Time) bool {
	select {
	case <-event:
	case <-timer:
	case <-c.closed:
		return false
	}
	return true
}

// Read implements net.Conn. It waits for the answer before it does anything to it: then the request was carried out.
func (c *networkConn) Read(p []byte) (int, error) {
	if c.broken {
		return 0, errors.Join(io.ErrUnexpectedEOF, c.Close())
	}
	n, err := c.Conn.Read(p)
	if err != nil {
		return n, err
	}
	switch Fate(c.fate.Load()) {
	case LoseAnswer:
		return 0, errors.Join(io.ErrUnexpectedEOF, c.Close())
	case CutAnswer:
		c.broken = true
		return max(n/2, 1), nil
	case SlowAnswer:
		c.wait(nil, time.After(time.Duration(c.moment.Swap(0))))
	case LateAnswer:
		c.wait(*c.another.Load(), nil)
	}
	return n, nil
}
