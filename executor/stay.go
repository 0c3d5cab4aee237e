package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"lapse/executor/guard"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/planner/survey"
	"lapse/schemas"
)

// Three places say, in the same words, why due rows stay: the metric held_back, lapse.worker for `lapse status`, and record.InForce.Stays,
// which derives it from the catalog alone. This file has what only this process knows.

const (
	// While a policy's rows stay, what is due under it is counted every countInterval, or after countShare times as long as the last count
	// took, if that is longer. A count older than mostCountInterval is not used.
	countInterval     = time.Minute
	countShare        = 50
	mostCountInterval = 5 * time.Minute
)

// stopsAll returns why nothing is deleted in the whole database; nil if something is.
func stopsAll(a *guard.Answer) *record.Stay {
	if !a.Stops() {
		return nil
	}
	reason := schemas.HeldByGuard
	switch a.Reason {
	case guard.PausedAll:
		reason = schemas.HeldByPause
	case guard.ClockJumped:
		reason = schemas.HeldByClock
	}
	return &record.Stay{Reason: reason, Detail: a.Detail + ": " + a.Fix}
}

// stays returns why due rows of a policy stay, if only this process knows; without a reason they do not.
func (w *worker) stays(p *record.InForce) record.Stay {
	m := w.memory(p)
	is, run, by, said := m.pauses.now(), m.run.now(), m.locks.by(), w.guards.own(p.Name)
	switch {
	case is.stopped != nil:
		return record.Stay{Reason: reasonOfStop(is.stopped), Detail: is.stopped.Error()}
	case said.verdict >= guard.Wait && said.reason == guard.WindowClosed:
		return record.Stay{Reason: schemas.HeldByWindow}
	case said.verdict >= guard.Wait && p.Tripped == nil:
		return record.Stay{Reason: schemas.HeldByGuard, Detail: said.text()}
	case is.throttled == throttleLock:
		return record.Stay{Reason: schemas.HeldByLock, Detail: lockText(by)}
	case p.LeftBehind && said.verdict < guard.Wait && !run.at(p.Unfinished) && by.process != 0:
		return record.Stay{Reason: schemas.HeldByLock, Detail: "in the last run " + by.String()}
	case is.throttled == limitRate && run.at(p.Unfinished):
		return record.Stay{Reason: schemas.HeldByLimit, Detail: rateText(p)}
	}
	return record.Stay{}
}

// reasonOfStop returns why rows stay after an error has stopped the policy.
func reasonOfStop(err error) schemas.HeldBack {
	var jump *run.ClockJumpError
	var skew *run.ClockSkewError
	if errors.As(err, &jump) || errors.As(err, &skew) {
		return schemas.HeldByClock
	}
	switch schemas.StateOf(err) {
	case schemas.SQLStateClockBack, schemas.SQLStateClockAhead, schemas.SQLStateCutoff:
		return schemas.HeldByClock
	}
	return schemas.HeldByGuard
}

// allStays returns every known reason why due rows of a policy stay.
func (w *worker) allStays(p *record.InForce, a *guard.Answer) []record.Stay {
	p = w.memory(p).quiet.since(p)
	if own := w.stays(p); own.Reason != "" {
		return p.Stays(w.now(), stopsAll(a), own)
	}
	return p.Stays(w.now(), stopsAll(a))
}

// measureStays updates the metrics on due rows that stay.
func (w *worker) measureStays(policies []record.InForce, a *guard.Answer) {
	working := w.scheduler.working()
	for i := range policies {
		p := &policies[i]
		w.metrics.stay(p, w.allStays(p, a))
		m := w.memory(p)
		run := m.run.now()
		w.metrics.backlog.late(m.quiet.since(p), w.now())
		w.metrics.backlog.outsideRuns(m.quiet.since(p), working[p.ID] || run.at(p.Unfinished), w.now())
	}
}

// countStays counts what is due under one of the policies whose rows stay, if it is time, so that the age of the oldest is right while
// nothing is deleted. It reads no more than necessary, and never keeps a policy from its turn for long.
func (w *worker) countStays(ctx context.Context, policies []record.InForce, a *guard.Answer) {
	if w.session.Lost() {
		return
	}
	working := w.scheduler.working()
	var next *record.InForce
	for i := range policies {
		p := &policies[i]
		if working[p.ID] || !w.memory(p).counting.now().isDue(p, w.now()) || len(w.allStays(p, a)) == 0 {
			continue
		}
		if next == nil || w.memory(p).counting.now().tried.Before(w.memory(next).counting.now().tried) {
			next = p
		}
	}
	if next != nil {
		w.countStay(ctx, next)
	}
}

// countStay counts what is due under a policy whose rows stay, and records it. A count that fails stays unknown.
func (w *worker) countStay(ctx context.Context, p *record.InForce) {
	began := w.now()
	defer func() { w.memory(p).counting.change(func(c *countTimes) { c.counted(began, w.now()) }) }()
	err := w.compareSurvey(ctx, p)
	var r survey.Remains
	if err == nil {
		r, err = survey.Staying(ctx, w.session.Batches, w.session.Control, p, began)
	}
	if err == nil {
		err = r.TakeDown(ctx, w.session.Control, p)
	}
	if err != nil {
		w.log.Debug("what is due while nothing is deleted is not counted", "policy", p.Name, "error", stripped("count", err))
	}
}

// countTimes remembers when due rows that stay were counted.
type countTimes struct {
	tried time.Time
	next  time.Time // no count before this time
}

// isDue reports whether it is time to count. Counts of other processes are taken into account.
func (c countTimes) isDue(p *record.InForce, now time.Time) bool {
	if now.Before(c.next) {
		return false
	}
	is := p.Counted
	return is == nil || now.Sub(is.At) >= countInterval || p.Overdue() == nil || p.Tripped != nil && p.Tripped.At.After(is.At)
}

// counted records a count.
func (c *countTimes) counted(began, ended time.Time) {
	c.tried = ended
	c.next = ended.Add(min(max(countShare*ended.Sub(began), factsInterval), mostCountInterval))
}

// lockText says who has the lock, if that is known.
func lockText(by *locker) string {
	return throttleLock + ": " + cmp.Or(by.String(), "another session has a lock on the table or on a partition, or waits for one: see pg_locks")
}

func rateText(p *record.InForce) string {
	return fmt.Sprintf("%s: its rate allows %s each second, for all executors together", limitRate, rowsOf(int64(p.Limits.Rate)))
}
