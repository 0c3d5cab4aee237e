package executor

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
)

// cut is what a proxy does to a COMMIT.
type cut int

const (
	pass       cut = iota
	dropCommit     // the COMMIT is lost, and both sides lose their connection
	dropAnswer     // the COMMIT arrives; its answer is lost
	loseRest       // the COMMIT's answer arrives, and nothing of what was sent with it
	holding        // the client loses its connection, the server keeps it: release says what becomes of the COMMIT
)

// proxy sits between executor and server and understands just enough of the protocol to see a COMMIT go by.
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
	rest           bool // but for that to COMMIT
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
		if message, err = w.commit(message); err != nil {
			return
		}
		if isCommit(message) {
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

// isCommit says whether a message runs COMMIT, as a simple query or as a statement of the extended protocol.
func isCommit(message []byte) bool {
	return message[0] == 'Q' && string(message[5:]) == "commit\x00" || message[0] == 'P' && strings.HasPrefix(string(message[5:]), "\x00commit\x00")
}

// commit returns message, and where it is a COMMIT of the extended protocol all that follows it up to Sync. One that is only
// described comes back as it is, with what follows.
func (w *wire) commit(message []byte) ([]byte, error) {
	if message[0] != 'P' || !isCommit(message) {
		return message, nil
	}
	for first := true; ; first = false {
		next, err := readMessage(w.client, true)
		if err != nil {
			return nil, err
		}
		if first && next[0] != 'B' {
			_, err := w.server.Write(message)
			return next, err
		}
		if message = append(message, next...); next[0] == 'S' {
			return message, nil
		}
	}
}

// cut does to a COMMIT what was asked.
func (w *wire) cut(what cut, message []byte) {
	answered := make(chan struct{})
	w.mu.Lock()
	w.deaf, w.answered, w.rest = true, answered, what == loseRest
	w.mu.Unlock()
	switch what {
	case dropAnswer:
		_, _ = w.server.Write(message)
		<-answered
		_ = w.client.Close()
		w.happened <- struct{}{}
	case loseRest:
		_, _ = w.server.Write(message)
		<-answered
		w.happened <- struct{}{}
	case holding:
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
		if w.rest {
			if end := bytes.Index(buffer[:n], []byte("COMMIT\x00")); end >= 0 {
				_, _ = w.client.Write(buffer[:end+len("COMMIT\x00")])
				_ = w.client.Close()
			}
		}
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
