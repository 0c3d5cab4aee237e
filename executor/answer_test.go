package executor

import (
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
)

// freezer sits between executor and server. It swallows all that goes over one connection from an instant on, and tells
// nobody.
type freezer struct {
	listener net.Listener
	server   string
	frozen   atomic.Int64 // the number of the connection; -1: none
	swallows atomic.Bool  // something went over it
	closed   chan struct{}
	wg       sync.WaitGroup
}

// startFreezer returns a freezer and the URL that leads through it.
func startFreezer(t *testing.T, serverURL string) (*freezer, string) {
	t.Helper()
	u, err := url.Parse(serverURL)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &freezer{listener: listener, server: u.Host, closed: make(chan struct{})}
	f.frozen.Store(-1)
	f.wg.Go(f.accept)
	t.Cleanup(func() {
		close(f.closed)
		_ = listener.Close()
		f.wg.Wait()
	})
	u.Host = listener.Addr().String()
	return f, u.String()
}

func (f *freezer) accept() {
	for i := int64(0); ; i++ {
		client, err := f.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", f.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		f.wg.Go(func() { f.pipe(i, server, client) })
		f.wg.Go(func() { f.pipe(i, client, server) })
	}
}

func (f *freezer) pipe(i int64, to, from net.Conn) {
	defer func() { _ = to.Close() }()
	buffer := make([]byte, 1<<16)
	for {
		n, err := from.Read(buffer)
		if f.frozen.Load() == i {
			f.swallows.Store(true)
			<-f.closed
			return
		}
		if err != nil {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// The first connection is the control connection of one worker, the second is the one for its batches.
func TestAConnectionThatGoesSilentIsGivenUpAndItsWorkerGoesOn(t *testing.T) {
	t.Parallel()
	for name, connection := range map[string]int64{"control": 0, "batches": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pgtest.On(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
				two(t, db, 600)
				f, through := startFreezer(t, db.As("lapse_executor"))
				log := &logBuffer{}
				var batches atomic.Int64
				e := executorAt(t, through, func(c *Config) {
					c.Limits.Workers, c.Limits.answerTime, c.Logger = 2, time.Second, log.logger()
					c.Progress = func(Progress) {
						if batches.Add(1) == 60 {
							f.frozen.Store(connection)
						}
					}
				})
				ctx, stop := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- e.Run(ctx) }()
				eventually(t, "all rows are gone", func() bool {
					return f.swallows.Load() && one[int](t, db, "select (select count(*) from a) + (select count(*) from b)") == 0
				})
				eventually(t, "the executor is ready", func() bool { return e.Ready() == nil })
				stop()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				if n := one[int](t, db, "select sum(deleted)::int from lapse.batch_result"); n != 1200 {
					t.Errorf("the ledger has %d rows, want 1200", n)
				}
			})
		})
	}
}

func TestAnExecutorThatHasNotLookedForLongIsNotReady(t *testing.T) {
	t.Parallel()
	clock := time.Now()
	e, err := New(Config{Database: nowhere(t), TagKey: testKey, Holder: "a test", Clock: func() time.Time { return clock }})
	if err != nil {
		t.Fatal(err)
	}
	e.setReady(nil)
	e.guards.begin(clock)
	clock = clock.Add(blindTime - time.Second)
	if err := e.Ready(); err != nil {
		t.Errorf("before the time is over: %v", err)
	}
	clock = clock.Add(time.Second)
	if e.Ready() == nil {
		t.Error("it is ready although nobody could look")
	}
	e.guards.seen = clock
	if err := e.Ready(); err != nil {
		t.Errorf("after a look: %v", err)
	}
}

// heldQuerier answers when release is closed, with an error.
type heldQuerier struct {
	asked   chan struct{}
	release chan struct{}
}

func (q *heldQuerier) QueryRow(context.Context, string, ...any) pgx.Row { return q }

func (q *heldQuerier) Scan(...any) error {
	q.asked <- struct{}{}
	<-q.release
	return io.ErrUnexpectedEOF
}

func TestALookWithoutAnAnswerBlocksNobodyWhoDoesNotAskAndTheNextLooksAgainWhenItFails(t *testing.T) {
	t.Parallel()
	g := testGuards(t)
	first := &heldQuerier{make(chan struct{}, 1), make(chan struct{})}
	second := &heldQuerier{make(chan struct{}, 1), make(chan struct{})}
	close(second.release)
	errs := make(chan error, 2)
	ask := func(q *heldQuerier) {
		_, err := g.ask(t.Context(), q, nil, time.Now())
		errs <- err
	}
	go ask(first)
	<-first.asked
	if a := g.last(); a.Stops() { // this must not wait for the look
		t.Error(a.Err())
	}
	go ask(second)
	select {
	case <-second.asked:
		t.Error("two looks are under way")
	case <-time.After(50 * time.Millisecond):
	}
	close(first.release)
	for range 2 {
		if err := <-errs; !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("got %v", err)
		}
	}
	if len(second.asked) != 1 {
		t.Error("after a look that failed nobody looked again")
	}
}
