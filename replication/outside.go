package replication

import (
	"context"
	"time"
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
