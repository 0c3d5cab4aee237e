package executor

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// cut is what a proxy does to a COMMIT.
type cut int

const (
	pass       cut = iota
	dropCommit     // the COMMIT is lost, and both sides lose their connection
	dropAnswer     // the COMMIT arrives; its answer is lost
	hold           // the client loses its connection, the server keeps it: release says what becomes of the COMMIT
)

// proxy stands between executor and server and understands just enough of the protocol to see a COMMIT go by.
type proxy struct {
	listener net.Listener
	server   string
	next     chan cut      // what to do to the next COMMIT; empty: pass
	release  chan bool     // of a held one: true lets it arrive
	happened chan struct{} // a COMMIT was cut
	closed   chan struct{} // the test is over
	wg       sync.WaitGroup
}

// startProxy returns a proxy and the URL that leads through it.
func startProxy(t *testing.T, serverURL string) (*proxy, string) {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{
		listener: listener, server: u.Host, next: make(chan cut, 1), release: make(chan bool, 1), happened: make(chan struct{}, 1),
		closed: make(chan struct{}),
	}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		close(p.closed)
		_ = listener.Close()
		p.wg.Wait()
	})
	u.Host = listener.Addr().String()
	return p, u.String()
}

func (p *proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		w := &wire{proxy: p, client: client, server: server}
		p.wg.Go(w.toServer)
		p.wg.Go(w.toClient)
	}
}

// wire is one connection through the proxy.
type wire struct {
	*proxy
	client, server net.Conn
	mu             sync.Mutex
	deaf           bool // answers go nowhere
	answered       chan struct{}
}

// toServer passes on whole messages, so that it knows which one is a COMMIT.
func (w *wire) toServer() {
	defer func() { _ = w.server.Close() }()
	for typed := false; ; typed = true {
		message, err := readMessage(w.client, typed)
		if err != nil {
			return
		}
		if string(message[min(5, len(message)):]) == "commit\x00" && message[0] == 'Q' {
			select {
			case what := <-w.next:
				w.cut(what, message)
				return
			default:
			}
		}
		if _, err := w.server.Write(message); err != nil {
			return
		}
	}
}

// cut does to a COMMIT what was asked.
func (w *wire) cut(what cut, message []byte) {
	answered := make(chan struct{})
	w.mu.Lock()
	w.deaf, w.answered = true, answered
	w.mu.Unlock()
	switch what {
	case dropAnswer:
		_, _ = w.server.Write(message)
		<-answered
		_ = w.client.Close()
		w.happened <- struct{}{}
	case hold:
		_ = w.client.Close()
		w.happened <- struct{}{}
		select {
		case arrives := <-w.release:
			if arrives {
				_, _ = w.server.Write(message)
				<-answered
			}
		case <-w.closed:
		}
	default:
		_ = w.server.Close()
		_ = w.client.Close()
		w.happened <- struct{}{}
	}
}

func (w *wire) toClient() {
	defer func() { _ = w.client.Close() }()
	buffer := make([]byte, 1<<16)
	for {
		n, err := w.server.Read(buffer)
		w.mu.Lock()
		deaf := w.deaf
		if deaf && w.answered != nil {
			close(w.answered)
			w.answered = nil
		}
		w.mu.Unlock()
		if err != nil {
			return
		}
		if deaf {
			continue
		}
		if _, err := w.client.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// readMessage reads one message of the frontend: a type, except for the first one, and a length that counts itself.
func readMessage(from io.Reader, typed bool) ([]byte, error) {
	head := make([]byte, 4, 5)
	if typed {
		head = head[:5]
	}
	if _, err := io.ReadFull(from, head); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(head[len(head)-4:])
	if length < 4 || length > 1<<24 {
		return nil, errors.New("not a message")
	}
	message := append(head, make([]byte, length-4)...)
	_, err := io.ReadFull(from, message[len(head):])
	return message, err
}
