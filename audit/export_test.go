package audit

import (
	"time"

	"lapse/audit/evidence"
	"lapse/schemas"
)

// AtSteps has a function called before each event, record of the log and confirmation; see step. acked says whether all
// that was handed over before is acknowledged.
func (a *Auditor) AtSteps(f func(before string, record *evidence.Entry, acked func() bool)) {
	a.boundary = func(s step, acked func() bool) { f(s.before, s.record, acked) }
}

// Impatient makes the auditor probe its server often, and report soon that the server sends nothing or is not read.
func (a *Auditor) Impatient(every, limit time.Duration) {
	a.probing.every, a.probing.silent, a.probing.unread, a.probing.synchronousPause = every, limit, limit, every
}

// LagTracker is the type that measures the lag behind the server's end.
type LagTracker = lagTracker

func (l *lagTracker) Restart(at schemas.LSN)                { l.restart(at) }
func (l *lagTracker) ReadUpTo(at schemas.LSN)               { l.readUpTo(at) }
func (l *lagTracker) Observe(end schemas.LSN, at time.Time) { l.observe(end, at) }
func (l *lagTracker) Lag(now time.Time) time.Duration       { return l.lag(now) }

// Reasons of refusals.
var ErrOtherEvents = errOtherEvents
