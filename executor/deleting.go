package executor

import (
	"context"
	"errors"
	"time"

	"lapse/executor/batch"
	"lapse/executor/guard"
	"lapse/internal/backoff"
)

// deleteSome deletes one batch of as many rows as the limits leave, and then waits as long as the guards ask for.
func (w *worker) deleteSome(ctx, work context.Context, t *turn, a *batch.Assignment, answer *guard.Answer) (turnEnd, error) {
	order := t.memory.sizing.next(t.policy, w.pace.share(t.policy), w.config.Limits.BatchTime)
	granted, end, err := w.allow(work, t, a.Lease, order.Limit)
	if err != nil || end != turnGoesOn {
		return end, err
	}
	done, end, err := w.batch(work, t, a, order, granted, answer.Verdict == guard.Go)
	if err != nil || end != turnGoesOn {
		return end, err
	}
	switch used := t.spend(done.Picked, w.now()); {
	case done.Finished:
		t.shardDone()
		return turnShardOver, nil
	case used:
		return turnMore, nil
	}
	w.slowDown(ctx, t, answer, done.Took-done.Slept)
	return turnGoesOn, nil
}

// slowDown makes the pause after a batch longer, if the guards' answer says so. took is the batch's time. slowDown ends early with ctx;
// the caller checks ctx.
func (w *worker) slowDown(ctx context.Context, t *turn, a *guard.Answer, took time.Duration) {
	p, why := t.policy, ""
	switch {
	case a.Verdict == guard.Slow:
		why = string(a.Reason)
	case paced(p):
		why = throttlePace
	}
	t.memory.pauses.change(func(d *delay) { d.throttled = why })
	if a.Verdict != guard.Slow || a.Slowdown <= 1 {
		return
	}
	length := min(time.Duration(float64(took)*(a.Slowdown-1)), longestPause)
	begun := time.Now()
	_ = backoff.Sleep(ctx, length)
	w.metrics.throttled.WithLabelValues(string(p.Name), p.TableName, string(a.Reason)).Add(time.Since(begun).Seconds())
}

// batch deletes one batch of at most the granted rows and learns from it. The turn goes on if the batch is durable, or if a smaller one is to
// be tried at once; then the result is empty.
func (w *worker) batch(ctx context.Context, t *turn, a *batch.Assignment, o batch.Order, granted int, unslowed bool) (batch.Result, turnEnd, error) {
	p, m := t.policy, t.memory
	o = m.sizing.order(a.Lease, p, o, granted)
	if paced(p) {
		defer w.takeTime(ctx, p, &o)()
	}
	name, table := string(p.Name), p.TableName
	w.metrics.batchSize.WithLabelValues(name, table).Set(float64(o.Limit))
	began := w.now()
	ticket := w.guards.memory.Unconfirmed.Draw()
	if w.session.BegunAhead() {
		ticket = w.aheadTicket
	}
	if unslowed && !paced(p) && !t.limited() && w.pass.most == 0 {
		o.Follows = func(done *batch.Result) bool { return w.follows(t, done) }
	}
	begun, done, err := w.session.Delete(ctx, a, w.config.TagKey, o)
	if begun.Insert > 0 {
		w.guards.memory.Unconfirmed.Below(ticket, begun.Insert)
	}
	var unknown *batch.UnknownCommit
	slept := done.Slept
	if !errors.As(err, &unknown) && err != nil { // nobody has said
		slept = min(time.Duration(float64(w.now().Sub(began))*o.Pause/(1+o.Pause)), time.Duration(o.Portions)*batch.LongestPause)
	}
	if paced(p) {
		w.batchSlept = slept
	}
	if unknown != nil {
		return batch.Result{}, turnMore, w.unanswered(ctx, t, &done, unknown)
	}
	w.giveRowsBack(ctx, t, a.Lease, granted-int(done.Deleted))
	if err != nil {
		end, err := w.failed(ctx, t, a, o, err)
		return batch.Result{}, end, err
	}
	if o.StepOver && done.Picked > done.Deleted || done.Quarantined > 0 {
		w.entered(ctx, t, a, &begun)
	}
	if done.Locker > 0 {
		w.rowsLocked(ctx, m, done.Locker)
	}
	if done.Took = w.now().Sub(began); done.Slept > 0 {
		w.metrics.throttled.WithLabelValues(name, table, throttlePace).Add(done.Slept.Seconds())
	}
	w.metrics.batchSeconds.WithLabelValues(name, table).Observe(done.Took.Seconds())
	m.through(p, a.Shard, o, &done, w.config.Limits.BatchTime)
	w.count(t, &done)
	return done, turnGoesOn, nil
}

// follows reports whether another batch of the shard follows at once, so that its BEGIN can be sent with this one's COMMIT.
func (w *worker) follows(t *turn, done *batch.Result) bool {
	now := w.now()
	if done.Finished || t.closed() || !t.goesOn(done.Picked, now) || !w.guards.fresh(now) {
		return false
	}
	w.aheadTicket = w.guards.memory.Unconfirmed.Draw()
	return true
}
