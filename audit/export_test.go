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

// Impatient shortens what the auditor waits before it says that the server is silent or not read, and looks often.
func (a *Auditor) Impatient(every, bound time.Duration) {
	a.looks.every, a.looks.silent, a.looks.unread, a.looks.again = every, bound, bound, every
}

// Unread is the type of the lag behind the server's end.
type Unread = unread

func (u *unread) Begin(at schemas.LSN)              { u.begin(at) }
func (u *unread) Reach(at schemas.LSN)              { u.reach(at) }
func (u *unread) See(end schemas.LSN, at time.Time) { u.see(end, at) }
func (u *unread) Lag(now time.Time) time.Duration   { return u.lag(now) }
