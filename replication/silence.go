package replication

import (
	"errors"
	"fmt"
	"time"
)

const (
	// answerEvery is how long the server may say nothing before it is asked for an answer.
	answerEvery = 10 * time.Second
	// silentAtMost is how long it may say nothing, though asked, before the stream is given up.
	silentAtMost = time.Minute
	// senderTimeoutAtMost bounds wal_sender_timeout in our own session. A server in the middle of a transaction of which
	// it sends nothing reads what we say, and answers, when half of that time has passed, and not before.
	senderTimeoutAtMost = 40 * time.Second
)

// ErrSilent means that the server was asked for an answer and gave none. A frozen host, or a proxy without a server, looks like a
// quiet database as long as TCP holds.
var ErrSilent = errors.New("the server does not answer on the stream")

// silence is what the stream knows of when it last heard from the server. See Stream.Silent.
type silence struct {
	askEvery time.Duration
	atMost   time.Duration

	began    time.Time // the clock's zero: what is kept is monotonic
	askedAt  time.Time // when the server was last asked
	listened int64     // position in the connection where the reader last ran out of messages
}

func newSilence() silence {
	return silence{askEvery: answerEvery, atMost: silentAtMost, began: time.Now()}
}

// Silent is the time since the last byte from the server. It stays below ten seconds or so: a server that says nothing
// is asked; one that is in the middle of a transaction of which it sends nothing takes twenty to answer. While messages
// lie here that nobody has taken it means nothing. Safe for concurrent use.
func (s *Stream) Silent() time.Duration {
	return time.Since(s.silence.began) - time.Duration(s.heardAt.Load())
}

// Ask has the server asked, with the next status, how far it has read. Its answer is a keepalive. Next and Wait send it
// within a tenth of the status interval. Safe for concurrent use.
func (s *Stream) Ask() { s.asking.Store(true) }

func (s *Stream) heard() { s.heardAt.Store(int64(time.Since(s.silence.began))) }

// listens is called before the stream waits for bytes. What was taken from the buffer since the last time took its own
// time, in which nobody listened.
func (s *Stream) listens() {
	if at := s.wire.base + int64(s.wire.r); at != s.silence.listened {
		s.silence.listened = at
		s.heard()
	}
}

// wantsAnswer says whether the next status asks for one, and must go out now because of it.
func (s *Stream) wantsAnswer(now time.Time) bool {
	every := s.silence.askEvery
	return s.asking.Load() || every > 0 && s.Silent() >= every && now.Sub(s.silence.askedAt) >= every
}

// gone is the end of a stream on which nothing comes.
func (s *Stream) gone() error {
	if silent := s.Silent(); s.silence.atMost > 0 && silent >= s.silence.atMost {
		return fmt.Errorf("read slot %q: %w: nothing for %s", s.slot, ErrSilent, silent.Round(time.Second))
	}
	return nil
}
