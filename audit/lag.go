package audit

import (
	"sync"
	"time"

	"lapse/schemas"
)

// lagTracker measures how long the server's WAL has had an end that was not read. It learns the ends from outside the stream, because a
// server that is busy or gone does not say in the stream what it has not sent. The zero value has seen no end. Safe for concurrent use.
type lagTracker struct {
	mu   sync.Mutex
	read schemas.LSN // everything below was read
	ends []walEnd    // observed, above read; both fields ascend
}

// walEnd is an end of the WAL, and when it was first observed.
type walEnd struct {
	lsn schemas.LSN
	at  time.Time
}

// maxEnds bounds the list: some minutes, at one observation every few seconds. Beyond it, neighbors are merged.
const maxEnds = 128

// restart starts again at a position, above which everything will be read again. Unread ends stay unread.
func (l *lagTracker) restart(at schemas.LSN) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.read = at
	l.dropRead()
}

// readUpTo records that everything up to a position was read.
func (l *lagTracker) readUpTo(at schemas.LSN) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at > l.read {
		l.read = at
		l.dropRead()
	}
}

// observe records the end of the server's WAL. An end that goes back belongs to another server: then all former ends are dropped.
func (l *lagTracker) observe(end schemas.LSN, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := len(l.ends) - 1
	if last >= 0 && end < l.ends[last].lsn {
		l.ends = nil
		last = -1
	}
	switch {
	case end <= l.read:
		l.ends = nil
	case last < 0 || end > l.ends[last].lsn:
		l.ends = append(l.ends, walEnd{end, at})
	}
	if len(l.ends) > maxEnds {
		l.merge()
	}
}

// lag returns the time since the oldest unread end was observed; 0 if everything was read.
func (l *lagTracker) lag(now time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ends) == 0 {
		return 0
	}
	return now.Sub(l.ends[0].at)
}

func (l *lagTracker) dropRead() {
	n := 0
	for n < len(l.ends) && l.ends[n].lsn <= l.read {
		n++
	}
	if l.ends = l.ends[n:]; len(l.ends) == 0 {
		l.ends = nil
	}
}

// merge makes one end of every two neighbors, with the earlier time and the further end. That can only make the lag longer, never shorter.
func (l *lagTracker) merge() {
	n := 0
	for i := 0; i < len(l.ends); i += 2 {
		l.ends[n] = walEnd{l.ends[min(i+1, len(l.ends)-1)].lsn, l.ends[i].at}
		n++
	}
	l.ends = l.ends[:n]
}
