package executor

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"lapse/executor/batch"
	"lapse/planner/functions"
	"lapse/planner/record"
	"lapse/schemas"
)

// grade says what follows from an error of a call for one policy.
func (w *worker) grade(err error, c circumstances) Grade {
	c.lost, c.own = w.session.Lost(), true
	return grade(err, c)
}

// failed does what a batch's error asks for: at once a careful one, or a smaller one, or the shard waits or is put aside. Any other error
// it returns. Of a leaf that is locked as a whole no careful batch gets a row either, and no row is to be looked for.
func (w *worker) failed(ctx context.Context, t *turn, a *batch.Assignment, o batch.Order, err error) (turnEnd, error) {
	m, state := t.memory, schemas.StateOf(err)
	whole := state == schemas.SQLStateLockNotAvailable && !w.session.Mute() && w.tableLocked(ctx, m, a.Leaf, a.Cascades)
	if !whole && m.sizing.blocked(a.Shard, o, err) {
		w.metrics.failed(t.policy, Retry.String())
		return turnGoesOn, nil
	}
	decision := w.grade(err, circumstances{
		limit: o.Limit, stepOver: o.StepOver, trusted: a.Trusted, locks: m.locks.tried(a.Shard, err), whole: whole,
	})
	w.metrics.failed(t.policy, decision.String())
	switch {
	case decision == Halve || decision == StepOver:
		w.narrow(t, a, o, err)
		return turnGoesOn, nil
	case decision == PutAside:
		return w.putAside(ctx, t, a, err)
	case decision != Retry || state != schemas.SQLStateLockNotAvailable:
		return turnGoesOn, err
	case m.locks.othersFirst(a.Shard):
		w.log.Log(ctx, m.locks.level(), "another session holds a lock; other shards go first", "policy", t.policy.Name, "relation", a.Leaf)
		return turnShardOver, nil
	case !t.leaveUnlessLast(): // what is left for this worker is locked, and the others are not held up by that
		return turnLeft, nil
	}
	return turnGoesOn, err
}

// narrow makes the next batches on the shard search for the row that made this one fail. One that took too long may have done
// so because of one row or of all: the next ones tell, and are smaller either way.
func (w *worker) narrow(t *turn, a *batch.Assignment, o batch.Order, err error) {
	m, level, slow := t.memory, slog.LevelDebug, schemas.StateOf(err) == schemas.SQLStateQueryCanceled
	facts := []any{"policy", t.policy.Name, "relation", a.Leaf, "rows", o.Limit, "error", stripped("delete a batch", err)}
	switch already := m.sizing.search(a.Shard, o.Limit, slow); {
	case slow:
		m.index.change(func(i *indexFacts) { i.askedAt = time.Time{} })
		if m.run.first(sayHalved) {
			level = slog.LevelWarn
		}
		w.log.Log(context.Background(), level, "a batch takes too long; the next are smaller", facts...)
	case !already:
		if m.run.first(sayResists) {
			level = slog.LevelInfo
		}
		w.log.Log(context.Background(), level, "a row resists; it is looked for", facts...)
	}
}

// putAside gives a shard up for this run because something is in the way that is no single row's fault. The others go on.
func (w *worker) putAside(ctx context.Context, t *turn, a *batch.Assignment, cause error) (turnEnd, error) {
	p, state := t.policy, schemas.StateOf(cause)
	until, err := w.session.PutAside(ctx, a.Lease, state)
	if err != nil {
		return turnGoesOn, err
	}
	t.shardDone()
	t.memory.locks.got(a.Shard)
	if state == schemas.SQLStateLockNotAvailable {
		w.log.Log(ctx, t.memory.locks.level(), "another session holds a lock; the shard is put aside", "policy", p.Name, "relation", a.Leaf, "next_try", until)
		return turnShardOver, nil
	}
	cause = stripped("find one row", cause)
	t.memory.sizing.putAside()
	t.memory.run.change(func(r *runFacts) { r.cause = cause })
	w.log.Error("not even one row is found in time; the shard is put aside", "policy", p.Name, "relation", a.Leaf, "error", cause, "next_try", until)
	return turnShardOver, nil
}

// trouble does what the grade of an error asks for that ended a worker's part in a turn. It returns an error only where that is no one
// policy's: the process must stop, or nobody can tell what became of a commit.
func (w *worker) trouble(t *turn, err error) (turnEnd, error) {
	p, m := t.policy, t.memory
	var unknown *batch.UnknownCommit
	if errors.As(err, &unknown) {
		return turnMore, err
	}
	if errors.Is(err, batch.ErrNoFunction) && m.pauses.missingForGood() {
		err = &batch.TamperedError{Function: functions.DeleteFunction(p.ID, p.Version), What: "is not there"}
	}
	decision, state := w.grade(err, circumstances{limit: 1}), schemas.StateOf(err)
	if decision == StopPolicy && state == schemas.SQLStateInsufficientPrivilege {
		err = w.orRowSecurity(p, err)
	}
	if prefix := "policy " + string(p.Name); schemas.StateOf(err) != "" || !strings.HasPrefix(err.Error(), prefix+": ") {
		err = stripped(prefix, err)
	}
	switch decision {
	case Retry:
		pause, level := m.pauses.retry(w.now()), slog.LevelWarn
		switch state {
		case schemas.SQLStateLockNotAvailable:
			level = m.locks.level()
			m.pauses.change(func(d *delay) { d.throttled = throttleLock })
		case schemas.SQLStateGate, schemas.SQLStateHalted: // somebody has placed a hold, applied or paused
			level = slog.LevelInfo
		}
		w.log.Log(context.Background(), level, "the batch is tried again", "policy", p.Name, "error", err, "pause_seconds", pause.Seconds())
		return turnBlocked, nil
	case Halve, StepOver, PutAside, StopPolicy: // of a call that is no batch, where there is nothing to halve
		w.stop(p, err)
		return turnStopped, nil
	default:
		return turnStopped, err
	}
}

// orRowSecurity is row security, where that is why a policy may not work on its table, and otherwise the error itself.
func (w *worker) orRowSecurity(p *record.InForce, err error) error {
	if w.session.Mute() {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastWordsTime)
	defer cancel()
	if blind, failed := p.BehindRowSecurity(ctx, w.session.Control); failed == nil && blind != nil {
		return blind
	}
	return err
}

// stop keeps a policy from its turns until its next scheduled time. Readiness says so at once; the log says it once, since a schedule may
// come ten times a second.
func (e *Executor) stop(p *record.InForce, err error) {
	until, unscheduled := p.Schedule.Next(e.now(), p.Since)
	if unscheduled != nil {
		until = e.now().Add(time.Hour)
	}
	level := slog.LevelError
	if e.memory(p).pauses.stop(err, until) {
		level = slog.LevelDebug
	}
	e.showStopped(p, err, until)
	e.metrics.in(p, stateStopped)
	e.metrics.skips.WithLabelValues(string(p.Name), p.TableName, string(stateStopped)).Inc()
	e.log.Log(context.Background(), level, "policy is stopped until its next scheduled time", "policy", p.Name, "table", p.TableName, "error", err, "until", until)
}
