package replication

import "errors"

// ErrWoken is what Next and Wait return after a Wake. Nothing is lost: the next call continues where this one stopped.
var ErrWoken = errors.New("the stream was woken")

// Wake makes Next or Wait return ErrWoken: the waiting call, or else the next one. It is for a caller that waits for the stream and for
// something else. Several unread wakes count as one; each call takes at most one, so wakes cannot keep messages from being delivered. A
// call that returns another error leaves the wake to the next call. Safe for concurrent use, even after Close.
func (s *Stream) Wake() {
	select {
	case s.wakeups <- struct{}{}:
		s.wire.interrupt()
	default:
	}
}

// takeWake reports whether there was a wake, and takes it.
func (s *Stream) takeWake() bool {
	select {
	case <-s.wakeups:
		return true
	default:
		return false
	}
}
