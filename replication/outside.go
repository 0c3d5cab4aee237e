package replication

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"lapse/schemas"
)

const (
	// probePause is how often the server is looked at from outside where its own sign cannot be seen, and how long a
	// transaction must have been open for that.
	probePause = time.Second
	// pressAgain is how often the caller is told again.
	pressAgain = 250 * time.Millisecond
)

// outside looks at the server from outside while a transaction is open. A server that shuts down sends the rest of it
// first, however long that takes, and asks for nothing meanwhile: the stream shows no sign.
type outside struct {
	since time.Time // when the transaction was first seen to be open; zero between transactions
	probe *probe    // nil before it has been open for probePause
	told  time.Time
}

// Stopping says that the server shuts down while a transaction is open: it will stop only when it has sent the rest, or
// when the stream is closed. Close it; the slot sends the transaction again. Known a second or two after the fact, in
// transactions that have been open for longer than a second.
func (s *Stream) Stopping() bool { return s.outside.probe.found() }

// pressed is true when the caller must be told, from time to time, that the server is Stopping.
func (s *Stream) pressed(now time.Time) bool {
	o := &s.outside
	switch {
	case !s.decoder.open() || s.plain == nil:
		return false
	case o.since.IsZero():
		o.since = now
	case o.probe == nil && now.Sub(o.since) >= probePause:
		o.probe = startProbe(context.Background(), s.plain, 0, s.wire.kick)
	}
	if !o.probe.found() || now.Sub(o.told) < pressAgain {
		return false
	}
	o.told = now
	return true
}

// press is the message that tells of it.
func (s *Stream) press(now time.Time) *Message {
	if !s.pressed(now) {
		return nil
	}
	s.keepalive = Message{Kind: KindKeepalive, Tx: s.decoder.tx, Open: true, Pressing: true}
	return &s.keepalive
}

// end is for the end of the transaction, and of the stream.
func (o *outside) end() {
	if o.since.IsZero() {
		return
	}
	if o.probe != nil {
		o.probe.stop()
	}
	*o = outside{}
}

// probe asks every now and then whether a server still takes connections.
type probe struct {
	stopping chan struct{} // closed when the server says that it is shutting down
	cancel   context.CancelFunc
	done     chan struct{}
}

// startProbe looks for the first time after a while, and calls kick, if it is not nil, once it has found something.
func startProbe(ctx context.Context, config *pgconn.Config, after time.Duration, kick func()) *probe {
	ctx, cancel := context.WithCancel(ctx)
	p := &probe{stopping: make(chan struct{}), cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		pause := time.NewTimer(after)
		defer pause.Stop()
		for {
			select {
			case <-pause.C:
			case <-ctx.Done():
				return
			}
			if isShuttingDown(ctx, config) {
				close(p.stopping)
				if kick != nil {
					kick()
				}
				return
			}
			pause.Reset(probePause)
		}
	}()
	return p
}

// found says whether the server is shutting down. A probe that is nil has found nothing.
func (p *probe) found() bool {
	if p == nil {
		return false
	}
	select {
	case <-p.stopping:
		return true
	default:
		return false
	}
}

func (p *probe) stop() {
	p.cancel()
	<-p.done
}

// isShuttingDown is true only if a server says so. It says "cannot connect now" while it starts too, but the caller has
// a stream from it.
func isShuttingDown(ctx context.Context, config *pgconn.Config) bool {
	ctx, cancel := context.WithTimeout(ctx, probePause)
	defer cancel()
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err == nil {
		_ = conn.Close(ctx)
		return false
	}
	return anyError(err, func(err error) bool {
		pg, ok := err.(*pgconn.PgError) //nolint:errorlint // anyError unwraps
		return ok && pg.Code == schemas.SQLStateCannotConnectNow
	})
}

// anyError looks at every error in the tree: a connection string with several hosts gives one for each.
func anyError(err error, is func(error) bool) bool {
	if err == nil {
		return false
	}
	if is(err) {
		return true
	}
	switch e := err.(type) { //nolint:errorlint // this is the unwrapping
	case interface{ Unwrap() error }:
		return anyError(e.Unwrap(), is)
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			if anyError(inner, is) {
				return true
			}
		}
	}
	return false
}
