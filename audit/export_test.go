package audit

import (
	"context"
	"time"

	"github.com/google/uuid"

	"lapse/audit/evidence"
	"lapse/schemas"
)

// OnBeat and those below it take the place of what Database does, without one.
func (c *Config) OnBeat(f func(context.Context, uuid.UUID, Server) error)      { c.asks.beat = f }
func (c *Config) OnDoubt(f func(context.Context) error)                        { c.asks.doubt = f }
func (c *Config) OnAlarm(f func(context.Context, string) error)                { c.asks.alarm = f }
func (c *Config) OnProbe(f func(context.Context, uint32) (schemas.LSN, error)) { c.asks.probe = f }
func (c *Config) OnEnd(f func(context.Context) (schemas.LSN, error))           { c.asks.end = f }
func (c *Config) Beat() func(context.Context, uuid.UUID, Server) error         { return c.asks.beat }

// AtSteps has a function called before each event, record of the log and confirmation; see step. acked says whether all
// that was handed over before is acknowledged.
func (a *Auditor) AtSteps(f func(before string, record *evidence.Entry, acked func() bool)) {
	a.boundary = func(s step, acked func() bool) { f(s.before, s.record, acked) }
}

// CoverEvery makes coverage records that nobody waits for as rare as that.
func (a *Auditor) CoverEvery(d time.Duration) { a.coverEvery = d }

// Impatient makes the auditor probe its server often, and report soon that the server sends nothing or is not read.
func (a *Auditor) Impatient(every, limit time.Duration) {
	a.probing.every, a.probing.silent, a.probing.unread, a.probing.synchronousPause = every, limit, limit, every
}

// Beats reports whether the auditor writes heartbeats at this time.
func (a *Auditor) Beats() bool { return a.server.Load() != nil }

// LagTracker is the type that measures the lag behind the server's end.
type LagTracker = lagTracker

func (l *lagTracker) Restart(at schemas.LSN)                { l.restart(at) }
func (l *lagTracker) ReadUpTo(at schemas.LSN)               { l.readUpTo(at) }
func (l *lagTracker) Observe(end schemas.LSN, at time.Time) { l.observe(end, at) }
func (l *lagTracker) Lag(now time.Time) time.Duration       { return l.lag(now) }

// Reasons of refusals.
var ErrOtherEvents = errOtherEvents
