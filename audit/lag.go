package audit

import (
	"sync"
	"time"

	"lapse/schemas"
)

// unread knows since when the server's log has an end that was not read. The stream alone cannot say it: a server that
// is busy, or gone, tells nothing of what it has not sent. Safe for concurrent use; the zero value knows of nothing.
type lagTracker struct {
	mu      sync.Mutex
	reached schemas.LSN
	ends    []walEnd // seen, above reached, in order of both
}

// logEnd is an end of the log that the server had at a time.
type walEnd struct {
	lsn schemas.LSN
	at  time.Time
}

// maxEnds bounds what is remembered. At a look each few seconds it is some minutes; beyond it every other is forgotten.
const maxEnds = 128

// begin starts over at a position: what was read beyond it will be read again. What was unread before stays so.
func (u *lagTracker) restart(at schemas.LSN) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.reached = at
	u.dropRead()
}

// reach takes note that everything up to a position has been read.
func (u *lagTracker) read(at schemas.LSN) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if at > u.reached {
		u.reached = at
		u.dropRead()
	}
}

// see takes note of the log's end. One that goes back is another server's: what was seen of the former says nothing.
func (u *lagTracker) observe(end schemas.LSN, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	last := len(u.ends) - 1
	if last >= 0 && end < u.ends[last].lsn {
		u.ends = nil
		last = -1
	}
	switch {
	case end <= u.reached:
		u.ends = nil
	case last < 0 || end > u.ends[last].lsn:
		u.ends = append(u.ends, walEnd{end, at})
	}
	if len(u.ends) > maxEnds {
		u.thin()
	}
}

// lag is how long ago the server was first seen with an end that has not been read; 0 if all has.
func (u *lagTracker) lag(now time.Time) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.ends) == 0 {
		return 0
	}
	return now.Sub(u.ends[0].at)
}

func (u *lagTracker) dropRead() {
	n := 0
	for n < len(u.ends) && u.ends[n].lsn <= u.reached {
		n++
	}
	if u.ends = u.ends[n:]; len(u.ends) == 0 {
		u.ends = nil
	}
}

// thin makes one of each two neighbours: the earlier time with the further end. The lag may come out longer, never
// shorter.
func (u *lagTracker) thin() {
	n := 0
	for i := 0; i < len(u.ends); i += 2 {
		u.ends[n] = walEnd{u.ends[min(i+1, len(u.ends)-1)].lsn, u.ends[i].at}
		n++
	}
	u.ends = u.ends[:n]
}
