package replication

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Patience with a server, in both directions: how long we wait for it, and how long we let it wait.
//
//	the server             it is asked                              it is given up
//	says nothing           each 10 s for an answer                  after a minute without a byte
//	shuts down, asks       (its requests are answered each 20 ms)   2 s after the caller stalled, 3 s after the first sign
//	shuts down in a        each second by a connection beside       at once
//	transaction            the stream, after the first second
//	does not end a Close   no                                       after a second
const (
	// askEvery is how long the server may be silent before we ask it for an answer.
	askEvery = 10 * time.Second
	// answerWithin is how long it may be silent, though asked, before we give up the stream.
	answerWithin = time.Minute
	// senderTimeoutAtMost bounds wal_sender_timeout in our own session. A server that reads a transaction and sends nothing of it reads our
	// messages, and answers, only when half of that time has passed.
	senderTimeoutAtMost = 40 * time.Second

	// answerPause is the shortest time between two answers to a server that asks. A server that shuts down asks again as soon as it is answered;
	// without the pause both sides would spin.
	answerPause = 20 * time.Millisecond
	// askedTwiceWithin is how close two requests of a server that shuts down are.
	askedTwiceWithin = 100 * time.Millisecond
	// probeEvery is how often the server is probed if its own sign cannot be seen, and how long a transaction must have been open for that.
	probeEvery = time.Second
	// tellEvery is how often the caller is told again that the server shuts down.
	tellEvery = 250 * time.Millisecond
	// signsLast is how long a sign of a shutdown counts. An older sign had another cause.
	signsLast = 10 * time.Second
	// StalledAtMost is how long the caller's wait may make no progress while a server shuts down.
	StalledAtMost = 2 * time.Second
	// keptWaitingAtMost is how long a server that shuts down is kept waiting, whatever the reason.
	keptWaitingAtMost = 3 * time.Second
	// closeWithin is how long Close waits for the server. A server in the middle of a large transaction reads nothing before its end.
	closeWithin = time.Second
)

var (
	// ErrStopping is what Wait returns when the server shuts down and waits for this stream.
	ErrStopping = errors.New("the server is shutting down and waits for this stream")
	// errOverdue: the caller must close the stream, or the server cannot stop in time.
	errOverdue = errors.New("the server is shutting down and can wait for this stream no longer")
	// errNoAnswer: the server was asked for an answer and gave none. As long as TCP holds, a frozen host, or a proxy without a server, looks like a
	// quiet database.
	errNoAnswer = errors.New("the server does not answer on the stream")
)

// CheckStop returns an error, of grade Retry, if the server shuts down and can wait no longer: close the stream. stalled is how long the
// caller's own wait has made no progress. Call it after ErrStopping and after a message with Stopping.
func (s *Stream) CheckStop(stalled time.Duration) error {
	if s.stop.probe.found() {
		return errOverdue // the server would wait for the rest of a transaction, however long
	}
	return s.stop.signs.check(time.Now(), stalled)
}

// stopSigns are the times when a server showed that it shuts down and waits for this stream.
type stopSigns struct{ first, last time.Time }

func (p *stopSigns) note(now time.Time) {
	if !p.recent(now) {
		p.first = now
	}
	p.last = now
}

func (p *stopSigns) recent(now time.Time) bool { return now.Sub(p.last) <= signsLast }

// repeatAt returns when to tell the caller again without another sign; zero for never.
func (p *stopSigns) repeatAt(now time.Time) time.Time {
	if !p.recent(now) {
		return time.Time{}
	}
	return now.Add(tellEvery)
}

func (p *stopSigns) check(now time.Time, stalled time.Duration) error {
	if p.recent(now) && (stalled >= StalledAtMost || now.Sub(p.first) >= keptWaitingAtMost) {
		return errOverdue
	}
	return nil
}

// stopWatch detects a server that shuts down. If a transaction is open, such a server first sends the rest of it, however long that takes,
// and asks for nothing meanwhile. The stream shows no sign then, so the server is probed.
type stopWatch struct {
	signs  stopSigns
	since  time.Time // when the transaction was first seen to be open; zero between transactions
	probe  *probe    // nil before it has been open for probeEvery
	toldAt time.Time // when the caller was last told what the probe found
}

// stopSeen reports, from time to time, that a probe has found the server shutting down, so that the caller is told.
func (s *Stream) stopSeen(now time.Time) bool {
	w := &s.stop
	switch {
	case !s.decoder.open() || s.plain == nil:
		return false
	case w.since.IsZero():
		w.since = now
	case w.probe == nil && now.Sub(w.since) >= probeEvery:
		w.probe = startProbe(context.Background(), s.plain, 0, s.wire.interrupt)
	}
	if !w.probe.found() || now.Sub(w.toldAt) < tellEvery {
		return false
	}
	w.toldAt = now
	return true
}

// stopMessage returns the message about it, or nil.
func (s *Stream) stopMessage(now time.Time) *Message {
	if !s.stopSeen(now) {
		return nil
	}
	s.stop.signs.note(now)
	s.keepalive = Message{Kind: KindKeepalive, Tx: s.decoder.tx, Open: true, Stopping: true}
	return &s.keepalive
}

// foundBy returns a channel that is closed when p has found the server shutting down; nil if the caller was told a moment ago.
func (w *stopWatch) foundBy(p *probe, now time.Time) <-chan struct{} {
	if now.Sub(w.toldAt) < tellEvery {
		return nil
	}
	return p.stopping
}

// endTransaction ends the probing.
func (w *stopWatch) endTransaction() {
	if w.since.IsZero() {
		return
	}
	if w.probe != nil {
		w.probe.end()
	}
	w.since, w.probe, w.toldAt = time.Time{}, nil, time.Time{}
}

// liveness is what the stream knows about a silent server.
type liveness struct {
	askEvery     time.Duration
	answerWithin time.Duration

	began   time.Time // the zero of the monotonic times below
	askedAt time.Time // when the server was last asked
	readAt  int64     // position in the connection where the reader last ran out of messages
}

func newLiveness() liveness {
	return liveness{askEvery: askEvery, answerWithin: answerWithin, began: time.Now()}
}

// Idle is the time since the last byte from the server. It normally stays below about ten seconds, because a silent server is asked; one that reads a
// transaction and sends nothing of it takes up to twenty to answer. It means nothing while received messages have not been taken. Safe for
// concurrent use.
func (s *Stream) Idle() time.Duration {
	return time.Since(s.liveness.began) - time.Duration(s.receivedAt.Load())
}

// Ask makes the next status ask the server how far it has read. The answer is a keepalive. Next and Wait send the status within a tenth of the status
// interval. Safe for concurrent use.
func (s *Stream) Ask() { s.asking.Store(true) }

func (s *Stream) received() { s.receivedAt.Store(int64(time.Since(s.liveness.began))) }

// beforeRead is called before the stream waits for bytes. The time that the caller spent on received messages does not count as silence of
// the server.
func (s *Stream) beforeRead() {
	if at := s.wire.base + int64(s.wire.r); at != s.liveness.readAt {
		s.liveness.readAt = at
		s.received()
	}
}

// wantsAnswer reports whether the next status must ask for an answer, and must be sent now because of that.
func (s *Stream) wantsAnswer(now time.Time) bool {
	every := s.liveness.askEvery
	return s.asking.Load() || every > 0 && s.Idle() >= every && now.Sub(s.liveness.askedAt) >= every
}

// checkAnswer returns an error if the server has not answered for too long.
func (s *Stream) checkAnswer() error {
	if idle := s.Idle(); s.liveness.answerWithin > 0 && idle >= s.liveness.answerWithin {
		return fmt.Errorf("read slot %q: %w: nothing for %s", s.slot, errNoAnswer, idle.Round(time.Second))
	}
	return nil
}
