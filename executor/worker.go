package executor

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"lapse/executor/batch"
	"lapse/executor/guard"
	"lapse/internal/backoff"
	"lapse/planner/record"
	"lapse/schemas"
)

// worker works on one shard at a time, with a session and leases of its own. Not safe for concurrent use.
type worker struct {
	*Executor
	scheduler   *scheduler
	number      int
	session     *batch.Session
	hasRead     bool            // it has read the list
	kept        *batch.Lease    // that was not given back because the connection was lost
	aheadTicket guard.Ticket    // drawn before the transaction was begun that lies ahead; see commitAndBegin
	batchEnded  time.Time       // of its last batch that shares the time
	batchTook   time.Duration   // by that one
	batchSlept  time.Duration   // of that, in its pauses
	batchOf     *record.InForce // its policy; nil after its pause
}

func (e *Executor) newWorker(number int, s *scheduler) *worker {
	return &worker{Executor: e, scheduler: s, number: number}
}

// run does one task after the other. It returns nil when the goal is reached, ErrStopping when ctx has ended, and an error
// that nobody should wait out. It leaves the session open: see signOff.
func (w *worker) run(ctx context.Context) error {
	pause := backoff.Backoff{Min: 100 * time.Millisecond, Max: 10 * time.Second}
	for {
		if w.number > 0 && w.guards.crowded(w.now()) {
			w.makeRoom(ctx)
		}
		connected := !w.session.Lost()
		w.scheduler.hasSession(w.number, connected)
		t := w.scheduler.next(connected)
		var err error
		switch {
		case t.over:
			return nil
		case ctx.Err() != nil:
			w.drop(&t)
			return ErrStopping
		case t.connect:
			err = w.connect(ctx, w.scheduler.goal.patience())
			if t.first {
				w.scheduler.connectEnded()
			}
		case t.read:
			err = w.read(ctx)
		case t.looks != nil:
			w.looks(ctx, t.looks)
		case t.turn != nil:
			var end turnEnd
			end, err = w.work(ctx, t.turn)
			w.scheduler.leave(t.turn, end)
		default:
			w.await(ctx, &t)
			continue
		}
		switch {
		case err == nil:
			pause.Reset()
		case errors.Is(err, ErrStopping):
			return ErrStopping
		case !w.scheduler.goal.outlasts(err, w.session.Lost()):
			return err
		case wait(ctx, pause.Next()) != nil:
			return ErrStopping
		}
	}
}

// roomTime is how long a worker that made room stays away at least: its own connections may be those that are too many.
const roomTime = 30 * time.Second

// makeRoom gives this worker's connections back for as long as the server has few left, or until ctx ends. The first worker goes on.
func (w *worker) makeRoom(ctx context.Context) {
	if !w.session.Lost() {
		w.log.Info("a worker gives its connections back: the server has few left", "worker", w.number)
	}
	w.close()
	for wait(ctx, roomTime) == nil && w.guards.crowded(w.now()) {
		continue
	}
}

// drop gives back a task that was not begun.
func (w *worker) drop(t *task) {
	switch {
	case t.first:
		w.scheduler.connectEnded()
	case t.read:
		w.scheduler.failed()
	case t.turn != nil:
		w.scheduler.leave(t.turn, turnMore)
	}
	w.scheduler.looked(t.looks)
}

// await waits until something has changed, or an instant.
func (w *worker) await(ctx context.Context, t *task) {
	timer := time.NewTimer(t.until.Sub(w.now()))
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-t.changed:
	case <-timer.C:
	}
}

// close ends the worker's session. Its leases were given back at the end of each shard.
func (w *worker) close() {
	w.guards.setBackend(w.number, 0)
	w.session.Close()
	w.session = nil
	w.scheduler.hasSession(w.number, false)
}

// connect opens a session if there is none. A server that is not there is waited for: until ctx ends, or for as long as
// patience. While another worker has a session, whatever keeps this one from its own is waited out: the login's connections
// may be few, and policies get their turns all the same.
func (w *worker) connect(ctx context.Context, patience time.Duration) error {
	pause := backoff.Backoff{Min: 50 * time.Millisecond, Max: 5 * time.Second}
	begun, warned := w.now(), false
	for w.session.Lost() {
		if ctx.Err() != nil {
			return ErrStopping
		}
		w.close() // one of its connections may still be there
		s, err := w.open(ctx)
		if err == nil {
			w.session = s
			w.guards.setBackend(w.number, s.Batches.PgConn().PID())
			w.guards.opened(s)
			w.scheduler.hasSession(w.number, true)
			w.giveBackKept(ctx)
			return nil
		}
		if ctx.Err() != nil {
			return ErrStopping
		}
		if w.scheduler.othersWork(w.number) {
			begun = w.now() // the patience is for a server that nobody reaches
			if !warned {
				w.log.Warn("a worker has no connection to the database; the others work on", "worker", w.number, "error", stripped("connect", err))
			}
			warned = true
		} else if err := w.unconnected(err, patience, begun); err != nil {
			return err
		}
		if err := wait(ctx, pause.Next()); err != nil {
			return err
		}
	}
	return nil
}

// open takes the session that was opened for the first worker, or opens one.
func (w *worker) open(ctx context.Context) (*batch.Session, error) {
	holder := w.holder + "/" + strconv.Itoa(w.number)
	s := w.takeOpened()
	if !s.Mute() {
		return s, s.Complete(ctx, holder)
	}
	s.Close()
	return batch.Connect(ctx, w.config.Database, holder, w.config.Limits.BatchTime, w.config.Limits.answerTime)
}

// unconnected says, and reports, that no worker has a session. It returns an error where that is not waited out.
func (w *worker) unconnected(err error, patience time.Duration, begun time.Time) error {
	if patience == notAtAll && schemas.StateOf(err) == schemas.SQLStateTooManyConnections {
		patience = serverPatience // the server is there; two workers may have half a session each
	}
	out := patience != forever && w.now().Sub(begun) > patience
	if out || !(circumstances{lost: true}).pass(err) {
		return err
	}
	err = stripped("connect", err)
	w.setReady(err)
	w.log.Warn("no connection to the database; trying again", "error", err)
	return nil
}

// giveBackKept releases the lease that a lost connection left behind.
func (w *worker) giveBackKept(ctx context.Context) {
	if l := w.kept; l != nil {
		w.kept = nil
		w.giveBack(ctx, l)
	}
}

// read reads the list of policies with what the guards say, and moves arming policies along.
func (w *worker) read(ctx context.Context) error {
	policies, answer, err := w.list(ctx)
	if err != nil {
		w.scheduler.failed()
		return err
	}
	w.hasRead = true
	if err := w.scheduler.list(policies, answer); err != nil {
		return err
	}
	if policies != nil {
		w.prune(ctx)
		w.countStays(ctx, policies, &answer)
	}
	return nil
}

// list is read without what the scheduler makes of it.
func (w *worker) list(ctx context.Context) ([]record.InForce, guard.Answer, error) {
	work, cancel := outlive(ctx, stopTime)
	defer cancel()
	answer, err := w.guards.ask(work, w.session.Control, nil, w.now())
	if err != nil {
		return nil, answer, err
	}
	w.answered(&answer)
	if answer.Reason == guard.NotInstalled {
		return nil, answer, nil
	}
	policies, err := w.versions.LoadInForce(work, w.session.Control)
	for i := range policies {
		policies[i].Know(w.memory(&policies[i]).programs.outdated)
	}
	if answer.Reason == guard.Standby {
		if err == nil { // what the primary did is read here too
			w.seed(work)
			w.observe(policies)
			w.measureStays(policies, &answer)
		}
		return nil, answer, nil
	}
	if err != nil {
		return nil, answer, err
	}
	for i := range policies {
		if policies[i].State != schemas.Arming {
			continue
		}
		if err := w.advance(work, &policies[i]); err != nil {
			if w.session.Lost() || schemas.StateOf(err) == "" { // what the server refuses concerns that policy alone
				return nil, answer, err
			}
			w.log.Warn("policy stays arming", "policy", policies[i].Name, "error", stripped("advance", err))
		}
	}
	w.seed(work)
	for _, m := range w.observe(policies) {
		unseen := m.run.now().runCounts
		w.ended(work, m.name, &unseen)
	}
	w.measureStays(policies, &answer)
	w.report(work, policies, &answer)
	return policies, answer, nil
}

// advance opens the gate of an arming policy if the auditor has come far enough. It asks twice: the first answer ever only
// means that the position was recorded.
func (w *worker) advance(ctx context.Context, p *record.InForce) error {
	for range 2 {
		if err := w.session.Control.QueryRow(ctx, `select lapse.advance_arming($1)`, int32(p.ID)).Scan(&p.State); err != nil {
			return fmt.Errorf("look whether policy %s may be armed: %w", p.Name, err)
		}
	}
	if p.State == schemas.Armed {
		w.log.Info("policy is armed", "policy", p.Name, "version", p.Version)
	}
	return nil
}

// wait lets d pass, or less if ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	if backoff.Sleep(ctx, d) != nil {
		return ErrStopping
	}
	return nil
}
