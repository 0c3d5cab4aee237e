package witness

import (
	"context"

	"lapse/internal/backoff"
)

// outlet is a witness or an anchor, with the checkpoint that it gets next: always the newest.
type outlet struct {
	kind, name string
	send       func(context.Context, *round) error

	fresh   chan struct{} // receives when there is a checkpoint
	next    *round        // nil: none; Witnesses.mu
	counted bool          // next waits for this outlet; false if it has tried next before
}

func (o *outlet) wake() {
	select {
	case o.fresh <- struct{}{}:
	default:
	}
}

// serve hands an outlet its checkpoints until ctx ends.
func (w *Witnesses) serve(ctx context.Context, o *outlet) {
	pauses := w.pauses
	failures := 0
	for {
		select {
		case <-o.fresh:
		case <-ctx.Done():
			return
		}
		w.mu.Lock()
		r, counted := o.next, o.counted
		o.next = nil
		w.mu.Unlock()
		if r == nil {
			continue
		}
		err := o.send(ctx, r)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err == nil && failures > 0:
			w.log.Info("checkpoints are taken again", "by", o.kind, "name", o.name)
			failures = 0
		case err != nil:
			if failures++; failures&(failures-1) == 0 {
				w.log.Warn("a checkpoint is not taken; trying again", "by", o.kind, "name", o.name, "attempt", failures, "error", err)
			}
		}
		w.answered(o, r, counted, err)
		if err == nil {
			pauses.Reset()
		} else if backoff.Sleep(ctx, pauses.Next()) != nil {
			return
		}
	}
}

// answered records the result of an outlet. One that failed gets the same checkpoint again after its pause, unless there is a newer one;
// nothing waits for it.
func (w *Witnesses) answered(o *outlet, r *round, counted bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	failing := 0.0
	if err != nil {
		failing = 1
		if o.next == nil {
			o.next, o.counted = r, false
			o.wake()
		}
	}
	w.metrics.failing.WithLabelValues(o.kind, o.name).Set(failing)
	if counted {
		w.leave(r)
	} else {
		w.handOut(r)
	}
}
