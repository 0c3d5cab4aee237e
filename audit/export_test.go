package audit

import (
	"time"

	"lapse/schemas"
)

// Impatient shortens what the auditor waits before it says that the server is silent or not read, and looks often.
func (a *Auditor) Impatient(every, bound time.Duration) {
	a.probing.every, a.probing.silent, a.probing.unread, a.probing.synchronousPause = every, bound, bound, every
}

// Unread is the type of the lag behind the server's end.
type Unread = lagTracker

func (u *lagTracker) Begin(at schemas.LSN)              { u.restart(at) }
func (u *lagTracker) Reach(at schemas.LSN)              { u.read(at) }
func (u *lagTracker) See(end schemas.LSN, at time.Time) { u.observe(end, at) }
func (u *lagTracker) Lag(now time.Time) time.Duration   { return u.lag(now) }
