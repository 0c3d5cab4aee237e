package audit

import (
	"sync"
	"time"

	"lapse/schemas"
)

// lagTracker knows for how long the server's WAL has had an end that was not read. It is told the ends from outside the
// stream: a server that is busy or gone says nothing in the stream of what it has not sent. The zero value has seen no end.
// Safe for concurrent use.
type lagTracker struct {
	mu   sync.Mutex
	read schemas.LSN // everything below is read
	ends []walEnd    // observed, above read; both fields ascend
}

// walEnd is an end of the WAL, and when it was observed first.
type walEnd struct {
	lsn schemas.LSN
	at  time.Time
}

// maxEnds bounds what is remembered: some minutes, at an observation each few seconds. Beyond it neighbours are merged.
const maxEnds = 128

// restart begins at a position: what was read beyond it will be read again. Ends that were not read stay so.
func (l *lagTracker) restart(at schemas.LSN) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.read = at
	l.dropRead()
}

// readUpTo notes that everything up to a position has been read.
func (l *lagTracker) readUpTo(at schemas.LSN) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at > l.read {
		l.read = at
		l.dropRead()
	}
}

// observe notes the end of the server's WAL. An end that goes back is another server's: those of the former are forgotten.
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

// lag is the time since the oldest end that has not been read was observed; 0 if everything has been read.
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

// merge makes one of each two neighbours, with the earlier time and the further end. The lag may come out longer, never
// shorter.
func (l *lagTracker) merge() {
	n := 0
	for i := 0; i < len(l.ends); i += 2 {
		l.ends[n] = walEnd{l.ends[min(i+1, len(l.ends)-1)].lsn, l.ends[i].at}
		n++
	}
	l.ends = l.ends[:n]
}
