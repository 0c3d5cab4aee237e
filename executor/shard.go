package executor

import (
	"context"
	"time"

	"lapse/executor/batch"
)

// shard works on one shard, and gives it back however it ends. Each round of its loop waits for the pace, asks the guards, and then drops
// the whole leaf, if the policy does that, or deletes one batch of its rows.
func (w *worker) shard(ctx, work context.Context, t *turn, l *batch.Lease) (turnEnd, error) {
	defer w.giveBack(work, l)
	defer func() { w.session.Abandon(work) }() // w.session may be another session by then
	a, err := w.assigned(work, t, l)
	if err != nil {
		return turnGoesOn, err
	}
	if paced(t.policy) {
		defer w.pace.join(budgetOf(t.policy))()
	}
	for drop := t.policy.Definition.DropsPartitions(); ctx.Err() == nil && !t.closed(); drop = false {
		if err := w.waitAfterBatch(ctx, work, t); err != nil {
			return turnGoesOn, err
		}
		if ctx.Err() != nil || t.closed() {
			break
		}
		answer, err := w.mayGo(work, t.policy)
		switch {
		case err != nil:
			return turnGoesOn, err
		case answer.Stops():
			return w.refused(t, &answer), nil
		}
		var end turnEnd
		if drop {
			end, err = w.dropLeaf(work, t, a)
		} else {
			end, err = w.deleteSome(ctx, work, t, a, &answer)
		}
		if err != nil || end != turnGoesOn {
			return end, err
		}
	}
	if ctx.Err() != nil {
		return turnMore, nil
	}
	return turnGoesOn, nil
}

// assigned builds the assignment of a leased shard.
func (w *worker) assigned(ctx context.Context, t *turn, l *batch.Lease) (*batch.Assignment, error) {
	f, err := t.memory.programs.batches()
	if err != nil {
		return nil, err
	}
	return batch.Assign(ctx, w.session, t.policy, l, f)
}

// giveBack releases a shard. A worker without a connection does so over its next one; without one, the lease ends by itself.
func (w *worker) giveBack(ctx context.Context, l *batch.Lease) {
	if w.session.Mute() {
		w.kept = l
		return
	}
	ctx, cancel := lastWords(ctx)
	defer cancel()
	ticket := w.guards.memory.Unconfirmed.Draw()
	above, err := w.session.Release(ctx, l)
	if err != nil {
		w.log.Warn("the lease was not given back; it ends by itself", "error", stripped("release", err))
		return
	}
	w.guards.memory.Unconfirmed.Below(ticket, above)
}

// lastWordsTime is how long the last statements of something that ends may take.
const lastWordsTime = time.Second

// lastWords returns a context for the last statements of something that ends: if ctx has ended, it gives them lastWordsTime more.
func lastWords(ctx context.Context) (context.Context, context.CancelFunc) {
	if ctx.Err() == nil {
		return ctx, func() {}
	}
	return context.WithTimeout(context.WithoutCancel(ctx), lastWordsTime)
}

// outlive returns a context that ends some time after ctx, so that open work can finish.
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
