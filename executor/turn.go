package executor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"lapse/planner"
	"lapse/schemas"
)

// versionKey names a policy version: what is learned of one says nothing of the next.
type versionKey struct {
	id      schemas.PolicyID
	version schemas.PolicyVersion
}

// memory is what this process knows of a policy version. Nothing but pace and counters depends on it.
type memory struct {
	name      schemas.PolicyName
	functions *functions // what its batches run; nil until the first
	pace      pace
	pauses    pauses
	notBefore time.Time      // no turn before: after a retry or a stop
	stopped   error          // why it was stopped; nil otherwise
	resists   error          // what was put aside in the last run; nil for nothing
	cause     error          // why this process put a shard aside in this run; nil if it did not
	behind    bool           // the last run left due rows that somebody had locked
	locks     map[uint32]int // by leaf: batches in a row that did not get a lock
	tally     tally
}

// locked counts the batches on a shard that did not get a lock.
func (m *memory) locked(a *assignment, err error) int {
	var server *pgconn.PgError
	if !errors.As(err, &server) || server.Code != schemas.SQLStateLockNotAvailable {
		return 0
	}
	if m.locks == nil {
		m.locks = map[uint32]int{}
	}
	m.locks[a.leaf]++
	return m.locks[a.leaf]
}

// tally counts what this process did in one run.
type tally struct {
	run                        uuid.UUID
	began                      time.Time
	deleted, cascaded, batches int64
}

func (e *Executor) memory(p *planner.InForce) *memory {
	key := versionKey{p.ID, p.Version}
	m := e.known[key]
	if m == nil {
		m = &memory{name: p.Name, pauses: pauses{first: 50 * time.Millisecond, last: 10 * time.Second}}
		e.known[key] = m
	}
	return m
}

// observe takes the list down for Status and metrics, and forgets what is no longer in force.
func (e *Executor) observe(policies []planner.InForce) {
	inForce := map[versionKey]bool{}
	names := map[schemas.PolicyName]bool{}
	status := make([]PolicyStatus, 0, len(policies))
	for i := range policies {
		p := &policies[i]
		inForce[versionKey{p.ID, p.Version}], names[p.Name] = true, true
		m, line := e.memory(p), PolicyStatus{Policy: p.Name, Table: p.TableName, Version: p.Version, State: p.State}
		switch {
		case p.State != schemas.Armed:
		case m.stopped != nil:
			line.State, line.Stopped, line.Until = stateStopped, m.stopped.Error(), m.notBefore
		case p.Trouble != "":
			line.State, line.Stopped = stateStopped, p.Trouble+": run `lapse apply`"
		}
		if m.resists != nil {
			line.Resists = m.resists.Error()
		}
		e.metrics.in(p, line.State)
		status = append(status, line)
	}
	for key, m := range e.known {
		if !inForce[key] {
			delete(e.known, key)
		}
		if !names[m.name] {
			e.metrics.forget(m.name)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.status = status
}

// mark enters a stop in the list at once, so that readiness does not wait for the next round.
func (e *Executor) mark(p *planner.InForce, err error, until time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.status {
		if e.status[i].Policy == p.Name {
			e.status[i].State, e.status[i].Stopped, e.status[i].Until = stateStopped, err.Error(), until
		}
	}
}

// due returns when an armed policy is to have its next turn.
func (e *Executor) due(p *planner.InForce) (at time.Time, armed bool) {
	if p.State != schemas.Armed {
		return time.Time{}, false
	}
	m := e.memory(p)
	at, err := p.NextRun()
	if err != nil && !m.notBefore.After(e.now()) {
		e.stop(p, fmt.Errorf("find the next run: %w", err))
	}
	if m.notBefore.After(at) {
		at = m.notBefore
	}
	return at, true
}

// turnEnd says why a turn ended.
type turnEnd int

const (
	turnGoesOn    turnEnd = iota // it has not ended
	turnFinished                 // the run is over
	turnMore                     // the turn's share is used up, or the executor is stopping
	turnElsewhere                // what is left of the run is in others' hands
	turnPutAside                 // a row resists: the shard is out of this run
	turnBlocked                  // an error to be retried; the policy pauses
	turnStopped                  // an error that stops the policy until its next scheduled time
	turnRefused                  // the audit is no longer healthy
)

// turn opens or resumes the policy's run and works on it until the run is over, the turn's share of rows and time is
// used up, or something is in the way. An error stops the process.
func (e *Executor) turn(ctx context.Context, p *planner.InForce) (turnEnd, error) {
	work, cancel := outlive(ctx, stopTime)
	defer cancel()
	m := e.memory(p)
	m.stopped = nil
	s := e.session
	if s.lost() {
		return turnBlocked, nil // the next round connects
	}
	run, err := planner.OpenRun(work, s.control, p, e.now)
	if err != nil {
		return e.trouble(p, err, 1)
	}
	if m.tally.run != run.ID {
		m.tally, m.cause = tally{run: run.ID, began: e.now()}, nil
		e.log.Info("run begins", "policy", p.Name, "version", p.Version, "run", run.ID, "cutoff", run.Cutoff, "resumed", run.Resumed)
	}
	share := share{rows: e.config.Limits.TurnRows, until: e.now().Add(e.config.Limits.TurnTime)}
	for {
		l, err := s.claim(work, run.ID)
		if err != nil {
			return e.trouble(p, err, 1)
		}
		if l == nil {
			return e.over(work, p, &run)
		}
		end, err := e.shard(ctx, work, p, l, &share)
		if err != nil || end != turnGoesOn {
			return end, err
		}
		if ctx.Err() != nil {
			return turnMore, nil
		}
	}
}

// share is what is left of a turn.
type share struct {
	rows  int64
	until time.Time
}

func (s *share) used(now time.Time) bool { return s.rows <= 0 || !now.Before(s.until) }

// over tells a run that is done from one whose last shards others hold.
func (e *Executor) over(ctx context.Context, p *planner.InForce, run *planner.Run) (turnEnd, error) {
	left, err := e.session.rest(ctx, run.ID)
	if err != nil {
		return e.trouble(p, err, 1)
	}
	m := e.memory(p)
	if left.unfinished {
		m.notBefore = e.now().Add(time.Second)
		return turnElsewhere, nil
	}
	m.resists = nil
	if left.aside > 0 {
		if m.cause == nil { // it was another process that tried
			m.cause = &ServerError{SQLState: left.state}
		}
		m.resists = &ResistingError{Policy: p.Name, Shards: left.aside, RetryAt: *left.retryAt, Cause: m.cause}
		e.metrics.skips.WithLabelValues(string(p.Name), p.TableName, reasonPutAside).Add(float64(left.aside))
	}
	m.behind = left.behind
	took := e.now().Sub(run.StartedAt)
	e.metrics.runSeconds.WithLabelValues(string(p.Name), p.TableName).Observe(took.Seconds())
	e.log.Info("run is over", "policy", p.Name, "run", run.ID, "deleted", m.tally.deleted, "cascaded", m.tally.cascaded,
		"batches", m.tally.batches, "seconds", took.Seconds(), "shards_put_aside", left.aside, "locked_rows_left", left.behind)
	return turnFinished, nil
}

// shard works on one shard, and gives it back however it ends. The turn goes on when the shard is done.
func (e *Executor) shard(ctx, work context.Context, p *planner.InForce, l *lease, share *share) (end turnEnd, err error) {
	s := e.session
	defer func() {
		if s.lost() {
			return
		}
		above, released := s.release(work, l)
		if released != nil {
			e.log.Warn("the lease was not given back; it ends by itself", "error", stripped("release", released))
			return
		}
		e.health.above(above)
	}()
	m := e.memory(p)
	if m.functions == nil {
		if m.functions, err = functionsOf(p, e.config.Roles); err != nil {
			return e.trouble(p, err, 1)
		}
	}
	a, err := assign(work, s, p, l, m.functions)
	if err != nil {
		return e.trouble(p, err, 1)
	}
	for ctx.Err() == nil {
		var refusal *Refusal
		if err := e.health.check(work, s, e.now()); errors.As(err, &refusal) {
			e.report(refusal)
			return turnRefused, nil
		} else if err != nil {
			return e.trouble(p, err, 1)
		}
		done, end, err := e.batch(work, p, a)
		if end == turnPutAside {
			return turnGoesOn, nil
		}
		if err != nil || end != turnGoesOn {
			return end, err
		}
		share.rows -= done.picked
		switch {
		case done.finished:
			return turnGoesOn, nil
		case share.used(e.now()):
			return turnMore, nil
		}
	}
	return turnMore, nil
}

// batch deletes one batch and learns from it. The turn goes on when the batch is durable, or when a smaller one is to be
// tried at once; then the result is empty.
func (e *Executor) batch(ctx context.Context, p *planner.InForce, a *assignment) (result, turnEnd, error) {
	m := e.memory(p)
	limit := m.pace.size(p.Batch)
	name, table := string(p.Name), p.TableName
	e.metrics.batchSize.WithLabelValues(name, table).Set(float64(limit))
	began := e.now()
	begun, done, err := e.session.deleteBatch(ctx, a, e.config.TagKey, limit)
	if begun.insert > 0 {
		e.health.above(begun.insert)
	}
	var unknown *unknownCommit
	if errors.As(err, &unknown) {
		return e.unanswered(ctx, p, &done, unknown)
	}
	if err != nil {
		decision := grade(err, circumstances{limit: limit, lost: e.session.lost(), own: true, locks: m.locked(a, err)})
		e.metrics.failed(p, decision.String())
		if decision == PutAside {
			end, err := e.putAside(ctx, p, a, err)
			return result{}, end, err
		}
		end, err := e.trouble(p, err, limit)
		return result{}, end, err
	}
	took := e.now().Sub(began)
	e.metrics.batchSeconds.WithLabelValues(name, table).Observe(took.Seconds())
	m.pace.took(limit, done.picked, took, e.config.Limits.BatchTime)
	m.pauses.reset()
	delete(m.locks, a.leaf)
	e.count(p, &done)
	return done, turnGoesOn, nil
}

// unanswered settles a commit that was not answered. Either way the policy goes on in its next turn, on the connection
// that settled it.
func (e *Executor) unanswered(ctx context.Context, p *planner.InForce, done *result, unknown *unknownCommit) (result, turnEnd, error) {
	e.log.Warn("a commit was not answered; asking what became of it", "policy", p.Name, "batch", done.batch,
		"error", stripped("commit", unknown.cause))
	e.health.ended(e.now())
	committed, err := e.settle(ctx, done)
	if err != nil {
		e.log.Error("what became of a batch is not known; its ledger row would say", "policy", p.Name, "batch", done.batch,
			"error", stripped("settle", err))
		return result{}, turnMore, err
	}
	e.log.Info("the commit is settled", "policy", p.Name, "batch", done.batch, "committed", committed)
	if committed {
		e.count(p, done)
	} else {
		e.metrics.failed(p, outcomeLost)
	}
	return result{}, turnMore, nil
}

// count enters a durable batch in counters, and says how far the run is.
func (e *Executor) count(p *planner.InForce, done *result) {
	e.health.ended(e.now())
	e.metrics.committed(p, done)
	t := &e.memory(p).tally
	t.deleted, t.cascaded, t.batches = t.deleted+done.deleted, t.cascaded+done.cascaded, t.batches+1
	if e.config.Progress == nil {
		return
	}
	progress := Progress{Policy: p.Name, Table: p.TableName, Run: t.run, Deleted: t.deleted, Cascaded: t.cascaded}
	if took := e.now().Sub(t.began); took > 0 {
		progress.Rate = float64(t.deleted+t.cascaded) / took.Seconds()
	}
	e.config.Progress(progress)
}

// grade is the package's grade, with what this executor knows.
func (e *Executor) grade(err error, limit int) Grade {
	return grade(err, circumstances{limit: limit, lost: e.session.lost(), own: true})
}

// putAside gives a shard up for this run because one of its rows resists. The others go on.
func (e *Executor) putAside(ctx context.Context, p *planner.InForce, a *assignment, cause error) (turnEnd, error) {
	var server *pgconn.PgError
	state := ""
	if errors.As(cause, &server) {
		state = server.Code
	}
	until, err := e.session.putAside(ctx, a.lease, state)
	if err != nil {
		return e.trouble(p, err, 1)
	}
	m := e.memory(p)
	delete(m.locks, a.leaf)
	if state == schemas.SQLStateLockNotAvailable {
		e.log.Warn("somebody holds a lock; the shard is put aside", "policy", p.Name, "relation", a.leaf, "next_try", until)
		return turnPutAside, nil
	}
	m.pace = pace{} // it is small because of this row
	m.cause = stripped("delete one row", cause)
	e.log.Error("a row resists; its shard is put aside", "policy", p.Name, "relation", a.leaf, "error", m.cause, "next_try", until)
	return turnPutAside, nil
}

// trouble does what the grade of an error asks for. It returns an error only where the process must stop.
func (e *Executor) trouble(p *planner.InForce, err error, limit int) (turnEnd, error) {
	m := e.memory(p)
	decision := e.grade(err, limit)
	err = stripped("policy "+string(p.Name), err)
	switch decision {
	case Retry:
		pause := m.pauses.grow()
		m.notBefore = e.now().Add(pause)
		e.log.Warn("the batch is tried again", "policy", p.Name, "error", err, "pause_seconds", pause.Seconds())
		return turnBlocked, nil
	case Halve:
		m.pace.halve(limit)
		e.log.Warn("the batch is halved", "policy", p.Name, "error", err, "rows", limit)
		return turnGoesOn, nil
	case StopPolicy:
		e.stop(p, err)
		return turnStopped, nil
	default:
		return turnStopped, err
	}
}

// stop keeps a policy from its turns until its next scheduled time.
func (e *Executor) stop(p *planner.InForce, err error) {
	m := e.memory(p)
	until, unscheduled := p.Schedule.Next(e.now(), p.Since)
	if unscheduled != nil {
		until = e.now().Add(time.Hour)
	}
	m.stopped, m.notBefore = err, until
	e.mark(p, err, until)
	e.metrics.in(p, stateStopped)
	e.metrics.skips.WithLabelValues(string(p.Name), p.TableName, string(stateStopped)).Inc()
	e.log.Error("policy is stopped until its next scheduled time", "policy", p.Name, "table", p.TableName, "error", err, "until", until)
}
