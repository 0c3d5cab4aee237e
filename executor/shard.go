package executor

import (
	"context"
	"errors"
	"time"

	"lapse/executor/guard"
	"lapse/planner"
)

// shard works on one shard, and gives it back however it ends. The turn goes on when the shard is done.
func (w *worker) shard(ctx, work context.Context, t *turn, l *lease) (end turnEnd, err error) {
	defer w.giveBack(work, l)
	defer func() { w.session.abandon(work) }() // of the session that it has then
	p := t.policy
	a, err := w.assigned(work, t, l)
	if err != nil {
		return w.trouble(t, err, 1)
	}
	batch := w.batch
	if gentle(p) {
		batch = w.gently
		defer w.pace.join()()
	}
	tryDrop := p.Definition.DropsPartitions()
	for ctx.Err() == nil && !t.closed() {
		if err := w.linger(ctx, work, t); err != nil {
			return w.trouble(t, err, 1)
		}
		if ctx.Err() != nil || t.closed() {
			break
		}
		answer, err := w.mayGo(work, p)
		if err != nil {
			return w.trouble(t, err, 1)
		}
		if answer.Stops() {
			return w.refused(t, &answer), nil
		}
		if tryDrop {
			tryDrop = false
			if end, over, err := w.dropLeaf(work, t, a); over || err != nil {
				return end, err
			}
			continue
		}
		limit, end, err := w.allow(work, t, l)
		if err != nil || end != turnGoesOn {
			return end, err
		}
		done, end, err := batch(work, t, a, limit, answer.Verdict == guard.Go)
		if end == turnShardOver {
			return turnGoesOn, nil
		}
		if err != nil || end != turnGoesOn {
			return end, err
		}
		switch used := t.spend(done.picked, w.now()); {
		case done.finished:
			t.shardDone()
			return turnGoesOn, nil
		case used:
			return turnMore, nil
		}
		t.memory.pauses.throttle(heldBackBy(p, &answer))
		w.guards.pause(ctx, p, &answer, done.took)
	}
	if ctx.Err() != nil {
		end = turnMore
	}
	return end, nil
}

// assigned says what the batches on a leased shard are to claim.
func (w *worker) assigned(ctx context.Context, t *turn, l *lease) (*assignment, error) {
	f, err := t.memory.programs.batches()
	if err != nil {
		return nil, err
	}
	return assign(ctx, w.session, t.policy, l, f)
}

// linger lets the pause pass that a batch at gentle pace is followed by.
func (w *worker) linger(ctx, work context.Context, t *turn) error {
	if !gentle(t.policy) {
		return nil
	}
	if err := w.lookAround(work); err != nil {
		return err
	}
	w.rest(ctx, t)
	return nil
}

// mayGo asks the guards for one batch, and looks at the policy's table before where it was not looked at lately.
func (w *worker) mayGo(ctx context.Context, p *planner.InForce) (guard.Answer, error) {
	if err := w.guards.lookAtTable(ctx, w.session.control, p, w.now()); err != nil {
		return guard.Answer{}, err
	}
	return w.guards.ask(ctx, w.session.control, p, w.now())
}

// heldBackBy is why the next batch has to wait, "" if it has not.
func heldBackBy(p *planner.InForce, a *guard.Answer) string {
	switch {
	case a.Verdict == guard.Slow:
		return string(a.Reason)
	case gentle(p):
		return throttlePace
	default:
		return ""
	}
}

// refused ends a turn because a guard lets no batch run. If none may run in the whole database, readiness says so at once.
func (w *worker) refused(t *turn, a *guard.Answer) turnEnd {
	t.rest(string(a.Reason))
	if !a.Until.IsZero() {
		return w.waits(t, a)
	}
	t.memory.pauses.wait(w.now().Add(lookInterval))
	if whole := w.guards.last(); whole.Stops() {
		w.answered(&whole)
	} else if a.Verdict == guard.Refuse {
		t.refused(a.Err())
	}
	return turnRefused
}

// giveBack releases a shard. A worker without a connection does it with its next one; if it gets none the lease ends by
// itself.
func (w *worker) giveBack(ctx context.Context, l *lease) {
	if w.session.mute() {
		w.kept = l
		return
	}
	ctx, cancel := lastWords(ctx)
	defer cancel()
	ticket := w.guards.memory.Unconfirmed.Draw()
	above, err := w.session.release(ctx, l)
	if err != nil {
		w.log.Warn("the lease was not given back; it ends by itself", "error", stripped("release", err))
		return
	}
	w.guards.memory.Unconfirmed.Below(ticket, above)
}

// batch deletes one batch of at most limit rows and learns from it. The turn goes on when the batch is durable, or when a smaller one is to be
// tried at once; then the result is empty.
func (w *worker) batch(ctx context.Context, t *turn, a *assignment, limit int, unslowed bool) (result, turnEnd, error) {
	p, m := t.policy, t.memory
	name, table := string(p.Name), p.TableName
	o := m.sizing.order(a.lease, p, limit)
	w.metrics.batchSize.WithLabelValues(name, table).Set(float64(o.limit))
	began := w.now()
	ticket := w.guards.memory.Unconfirmed.Draw()
	if w.session.ahead != nil {
		ticket = w.aheadTicket
	}
	if unslowed && !gentle(p) && !t.limited() && w.pass.most == 0 {
		o.follows = func(done *result) bool { return w.follows(t, done) }
	}
	begun, done, err := w.session.deleteBatch(ctx, a, w.config.TagKey, o)
	if begun.insert > 0 {
		w.guards.memory.Unconfirmed.Below(ticket, begun.insert)
	}
	var unknown *unknownCommit
	if errors.As(err, &unknown) {
		return w.unanswered(ctx, t, &done, unknown)
	}
	w.giveRowsBack(ctx, t, a.lease, limit-int(done.deleted))
	if err != nil {
		end, err := w.failed(ctx, t, a, o, err)
		return result{}, end, err
	}
	if o.stepOver && done.picked > done.deleted || done.rested > 0 {
		w.entered(ctx, t, a, &begun)
	}
	if done.locker > 0 {
		w.rowsLocked(ctx, m, done.locker)
	}
	done.took = w.now().Sub(began)
	w.metrics.batchSeconds.WithLabelValues(name, table).Observe(done.took.Seconds())
	m.through(p, a.shard, o, &done, w.config.Limits.BatchTime)
	w.count(t, &done)
	return done, turnGoesOn, nil
}

// follows reports whether another batch of the shard follows at once. Its transaction is about to begin with this one's COMMIT.
func (w *worker) follows(t *turn, done *result) bool {
	now := w.now()
	if done.finished || t.closed() || !t.goesOn(done.picked, now) || !w.guards.fresh(now) {
		return false
	}
	w.aheadTicket = w.guards.memory.Unconfirmed.Draw()
	return true
}

// unanswered finds out what became of a commit that was not answered. Either way the policy goes on in its next turn, on
// the connection that found out.
func (w *worker) unanswered(ctx context.Context, t *turn, done *result, unknown *unknownCommit) (result, turnEnd, error) {
	p := t.policy
	w.log.Warn("a commit was not answered; asking what became of it", "policy", p.Name, "batch", done.batch,
		"error", stripped("commit", unknown.cause))
	w.guards.memory.Unconfirmed.Ended(w.now())
	committed, err := w.awaitOutcome(ctx, done)
	if err != nil {
		w.log.Error("what became of a batch is not known; its ledger row would say", "policy", p.Name, "batch", done.batch,
			"error", stripped("ask", err))
		return result{}, turnMore, err
	}
	w.log.Info("what became of the commit is known", "policy", p.Name, "batch", done.batch, "committed", committed)
	if committed {
		w.count(t, done)
	} else {
		w.metrics.failed(p, outcomeLost)
	}
	return result{}, turnMore, nil
}

// count enters a durable batch in counters, and says how far the run is.
func (w *worker) count(t *turn, done *result) {
	w.guards.memory.Unconfirmed.Ended(w.now())
	w.metrics.committed(t.policy, done)
	t.memory.run.add(done)
	w.total(t.policy, done)
	if done.picked > 0 || w.config.Progress != nil {
		w.showProgress(t, "")
	}
}

// lastWords returns a context for what is said at the end of something: closeTimeout more where ctx has ended.
func lastWords(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
}

// outlive returns a context that ends some time after ctx does, so that what is open can be brought to its end.
func outlive(ctx context.Context, by time.Duration) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := context.AfterFunc(ctx, func() {
		timer := time.NewTimer(by)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel()
		case <-work.Done():
		}
	})
	return work, func() {
		ended()
		cancel()
	}
}
