package replication

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"lapse/schemas"
)

// Stream reads one slot. All methods but Confirm, Wake, Idle and Ask belong to one goroutine, which must call Next, Wait or During at least
// once in the server's wal_sender_timeout (at most 40 s), or the server ends the stream.
//
// The first error is the last: it closes the connection, and every later call returns it again. The end of a context is no such error, and
// neither are ErrWoken and ErrStopping: the stream can continue.
type Stream struct {
	conn    *pgconn.PgConn // for sending; wire receives
	wire    *wire
	plain   *pgconn.Config // for probes
	slot    string
	log     *slog.Logger
	decoder *decoder

	identity  Identity
	startedAt schemas.LSN

	confirmed atomic.Uint64 // durable position
	sent      schemas.LSN   // what this server has sent; the server is told no position beyond it
	status    statuses

	senderTimeout time.Duration // of the server, for this session
	liveness      liveness
	receivedAt    atomic.Int64 // last byte from the server, since liveness.began
	counts        func(int)    // StreamConfig.Received
	asking        atomic.Bool  // see Ask
	stop          stopWatch
	wakeups       chan struct{} // see Wake

	keepalive Message
	noted     int64 // position in the connection up to which Wait has answered requests
	count     uint8 // messages since the clock was checked
	waited    bool  // the server has said that it waits for a standby

	watched <-chan struct{} // of the context that interrupts reads
	unwatch func() bool
	err     error
}

// Identity says which database this is.
func (s *Stream) Identity() Identity { return s.identity }

// StartedAt is the slot's confirmed position when it was opened. Everything that ends above it will be delivered.
func (s *Stream) StartedAt() schemas.LSN { return s.startedAt }

// SetHistory sets the history that the transactions from here on belong to. Call it between transactions.
func (s *Stream) SetHistory(history schemas.History) { s.decoder.history = history }

// ServerPID is the process id of the server process that serves this stream.
func (s *Stream) ServerPID() uint32 { return s.conn.PID() }

// Confirm says that everything that ends at or below the position is durable elsewhere and need never be sent again. Positions only go
// forward; lower ones are ignored. Call it from any goroutine. The server learns it with the next status: from Next and Wait within a tenth
// of the status interval. After a crash, the server's own copy may be older.
//
// For a transaction the position is its EndLSN: after the commit's own position it would be sent again. For a keepalive it is WALEnd, and
// only while no transaction is open or under way.
func (s *Stream) Confirm(position schemas.LSN) {
	for {
		was := s.confirmed.Load()
		if uint64(position) <= was || s.confirmed.CompareAndSwap(was, uint64(position)) {
			return
		}
	}
}

// Confirmed is the highest confirmed position, or StartedAt.
func (s *Stream) Confirmed() schemas.LSN { return schemas.LSN(s.confirmed.Load()) }

// Next returns the next message. It waits for one as long as it takes, sends statuses meanwhile, and answers a server that asks, always
// with the confirmed position. The end of a context, and a Wake, interrupt it at once and lose nothing: the next call continues where this
// one stopped.
//
// Message says how long it and its bytes are valid.
func (s *Stream) Next(ctx context.Context) (*Message, error) {
	if s.err != nil {
		return nil, s.err
	}
	if len(s.wakeups) > 0 && s.takeWake() {
		return nil, ErrWoken
	}
	// Reading the clock and the context costs more than decoding a row.
	if s.count++; s.count == 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		now := time.Now()
		if err := s.tick(now); err != nil {
			return nil, err
		}
		if m := s.stopMessage(now); m != nil {
			return m, nil
		}
	}
	for {
		f, ok, err := s.wire.frame()
		if err == nil && f.size() > largeMessage {
			f, ok, err = s.headOrWhole(f, ok)
		}
		if err != nil {
			return nil, s.fail(err)
		}
		if m := s.decoder.pending(f.messageType(ok)); m != nil {
			return m, nil
		}
		if !ok {
			if err := s.receive(ctx); err != nil {
				return nil, err
			}
			if m := s.stopMessage(time.Now()); m != nil {
				return m, nil
			}
			continue
		}
		s.wire.skip(f)
		if m, err := s.handle(f); m != nil || err != nil {
			return m, err
		}
	}
}

// fail ends the stream. It closes the socket at once, not in Close, so that a server that shuts down does not wait for a reader that has given up.
func (s *Stream) fail(err error) error {
	if s.err != nil {
		return s.err
	}
	s.err = err
	s.unwatchContext()
	s.stop.endTransaction()
	_ = s.wire.Close()
	return err
}
