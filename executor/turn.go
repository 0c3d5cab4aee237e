package executor

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/planner/survey"
)

// turnEnd says why a turn ended. If its workers had several reasons, the greatest counts.
type turnEnd int

const (
	turnShardOver turnEnd = iota - 2 // of one shard only: it is done, put aside, or waits for a lock, and the turn goes on with the others
	turnLeft                         // of one worker only, which is gone already: see leaveUnlessLast
	turnGoesOn                       // it has not ended, or another worker says how
	turnElsewhere                    // what is left of the run is in others' hands
	turnFinished                     // the run is over
	turnMore                         // the turn's share is used up, or the executor is stopping
	turnLimited                      // a limit of the policy's is reached: the next run, or the next window, goes on
	turnRefused                      // a guard lets no batch run
	turnBlocked                      // an error to be retried; the policy pauses
	turnStopped                      // an error that stops the policy until its next scheduled time
)

// turn is what one policy may do before the next has its turn, with all the workers that help. It opens or resumes the
// policy's run, and its workers take one shard after the other until the run is over, the turn's share of rows and time is
// used up, or something is in the way. Safe for concurrent use.
type turn struct {
	policy *record.InForce
	memory *policyMemory
	whole  bool // somebody asked for it: its look begins at the table's start, whatever low-water marks say

	mu      sync.Mutex
	run     *record.Run // nil until it is open
	rows    int64       // what is left of the share
	until   time.Time
	workers int
	shards  int  // of the run that may need a worker
	taken   bool // no shard was free when somebody asked last
	end     turnEnd
	refusal error            // of a guard, for this policy alone, that needs a person
	limit   string           // the one that ended it
	held    string           // why the run does not go on
	due     *int64           // rows that were due before the run was opened; nil: nobody counted
	judged  survey.Judgement // what judge has counted; without a count if it had no reason to
	// expected is due, or PostgreSQL's estimate of it; 0: not known.
	expected int64
}

func newTurn(p *record.InForce, m *policyMemory) *turn {
	return &turn{policy: p, memory: m, workers: 1}
}

// needsHelp reports whether there may be a shard for one worker more.
func (t *turn) needsHelp() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.run != nil && t.end == turnGoesOn && !t.taken && t.shards > t.workers
}

func (t *turn) join() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.workers++
}

// opened takes the turn's run, and begins its share.
func (t *turn) opened(run *record.Run, rows int64, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.run, t.shards, t.rows, t.until = run, run.Shards, rows, until
}

// begun returns the turn's run, nil if nobody has opened it.
func (t *turn) begun() *record.Run {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.run
}

// spend takes a batch's rows from the share, and reports whether it is used up.
func (t *turn) spend(rows int64, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows -= rows
	return t.rows <= 0 || !now.Before(t.until)
}

// goesOn reports whether something will be left of the share when so many rows are spent.
func (t *turn) goesOn(rows int64, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rows > rows && now.Before(t.until)
}

// closed reports whether the turn has ended for another worker's reason.
func (t *turn) closed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.end != turnGoesOn
}

// shardDone says that a shard needs no worker any more in this turn.
func (t *turn) shardDone() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shards--
}

// leaveUnlessLast removes the calling worker from the turn, because no shard is free. It returns true, and removes nothing, if that worker
// is the last: the last worker finishes the run.
func (t *turn) leaveUnlessLast() (last bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken = true
	if t.workers == 1 {
		return true
	}
	t.workers--
	return false
}

// holds records why the run does not go on, and refusal if a guard refuses this policy alone.
func (t *turn) holds(why string, refusal error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.held = why
	if refusal != nil {
		t.refusal = refusal
	}
}

// heldBy is why the run does not go on.
func (t *turn) heldBy() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.held
}

// leave takes a worker away that ends with a reason, and reports whether the turn is over with it.
func (t *turn) leave(end turnEnd) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if end == turnLeft {
		return false
	}
	t.end = max(t.end, end)
	t.workers--
	return t.workers == 0
}

// work runs this worker's part of a turn, and grades the error that ends it. The steps return plain errors.
func (w *worker) work(ctx context.Context, t *turn) (turnEnd, error) {
	work, cancel := outlive(ctx, stopTime)
	defer cancel()
	end, err := w.takePart(ctx, work, t)
	if err != nil {
		end, err = w.trouble(t, err)
	}
	w.noteSuspension(ctx, work, t, end)
	return end, err
}

// takePart is work in a context for what is open: the run is opened, and one shard after the other is worked on, until none is free.
func (w *worker) takePart(ctx, work context.Context, t *turn) (turnEnd, error) {
	if t.begun() == nil {
		if end, err := w.begin(work, t); err != nil || end != turnGoesOn {
			return end, err
		}
	}
	for {
		l, err := w.session.Acquire(work, t.begun().ID)
		switch {
		case err != nil:
			return turnGoesOn, err
		case l == nil && t.leaveUnlessLast():
			return w.finish(work, t)
		case l == nil:
			return turnLeft, nil
		}
		end, err := w.shard(ctx, work, t, l)
		switch {
		case err != nil || end != turnShardOver:
			return end, err
		case ctx.Err() != nil:
			return turnMore, nil
		case t.closed():
			return turnGoesOn, nil
		}
	}
}

// begin opens or resumes the policy's run.
func (w *worker) begin(ctx context.Context, t *turn) (turnEnd, error) {
	p, m := t.policy, t.memory
	if end, err := w.admit(ctx, t); err != nil || end != turnGoesOn {
		return end, err
	}
	due, end, err := w.look(ctx, t)
	if err != nil || end != turnGoesOn {
		return end, err
	}
	if end, err := w.judge(ctx, t); err != nil || end != turnGoesOn {
		return end, err
	}
	backlog, end, err := w.ranges(ctx, t)
	if err != nil || end != turnGoesOn {
		return end, err
	}
	rows, err := w.tableRows(ctx, p)
	if err != nil {
		return turnGoesOn, err
	}
	run, err := run.Open(ctx, w.session.Control, p, w.now, run.Options{Due: due, Rows: rows, Cuts: backlog.Cuts, Heaps: backlog.Heaps})
	if err != nil {
		return turnGoesOn, err
	}
	other, former := m.begin(&run, t.expected, w.now())
	if former != nil {
		w.ended(ctx, p.Name, former)
	}
	if other {
		w.log.Debug("run begins", "policy", p.Name, "version", p.Version, "run", run.ID, "cutoff", run.Cutoff, "resumed", run.Resumed)
	}
	t.opened(&run, w.config.Limits.TurnRows, w.now().Add(w.config.Limits.TurnTime))
	if err := w.noteDue(ctx, t); err != nil {
		return turnGoesOn, err
	}
	w.checkIndex(ctx, t)
	w.scheduler.ready()
	return turnGoesOn, nil
}

// admit asks what may end a turn before anything of the policy's table is read.
func (w *worker) admit(ctx context.Context, t *turn) (turnEnd, error) {
	t.memory.pauses.change(func(d *delay) { d.stopped = nil })
	if err := t.memory.programs.outdated(); err != nil {
		return turnGoesOn, err
	}
	a, err := w.guards.ask(ctx, w.session.Control, t.policy, w.now())
	if err != nil || !a.Stops() {
		return turnGoesOn, err
	}
	w.guards.skipped(t.policy, a.Reason)
	return w.refused(t, &a), nil
}

// finish tells a run that is done from one whose last shards others hold.
func (w *worker) finish(ctx context.Context, t *turn) (turnEnd, error) {
	p, m, run := t.policy, t.memory, t.begun()
	left, err := leftOf(ctx, w.session.Control, run.ID)
	if err != nil {
		return turnGoesOn, err
	}
	if left.unfinished {
		m.pauses.change(func(d *delay) { d.until = w.now().Add(elsewhereInterval) })
		return turnElsewhere, nil
	}
	if left.limited {
		m.run.change(func(r *runFacts) { r.open = false })
		t.reachedLimit(t.limitText())
		return turnLimited, nil
	}
	rest, err := w.leftInQuarantine(ctx, t, &left)
	if err == nil {
		err = w.closeRun(ctx, t, &left, rest)
	}
	if err == nil {
		err = w.askWhatItDid(ctx, t)
	}
	if err != nil {
		return turnGoesOn, err
	}
	m.finish(p, &left, rest)
	did := m.run.now()
	w.metrics.backlog.ended(p, &did.whole, left.aside == 0 && !left.lockedLeaf, w.now())
	if left.aside > 0 {
		w.metrics.skips.WithLabelValues(string(p.Name), p.TableName, reasonPutAside).Add(float64(left.aside))
	}
	took := w.now().Sub(run.StartedAt)
	w.metrics.runSeconds.WithLabelValues(string(p.Name), p.TableName).Observe(took.Seconds())
	level := slog.LevelInfo
	if did.deleted+did.cascaded == 0 && left.aside == 0 && !left.lockedRows && rest.rows == 0 {
		level = slog.LevelDebug // nothing was due
	}
	w.log.Log(ctx, level, "run is over", "policy", p.Name, "run", run.ID, "deleted", did.deleted, "cascaded", did.cascaded,
		"batches", did.batches, "seconds", took.Seconds(), "shards_put_aside", left.aside, "locked_rows_left", left.lockedRows, "rows_in_quarantine", rest.rows)
	return turnFinished, nil
}

// elsewhereInterval is how soon a run is checked again whose last shards others hold.
const elsewhereInterval = time.Second
