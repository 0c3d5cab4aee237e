package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// part runs until its context ends. If run returns an error, the part cannot continue and the process ends, because a person must act.
type part struct {
	name string
	run  func(ctx context.Context) error
	// stop is how long run may take to return after its context has ended.
	stop time.Duration
}

// errAbandoned says that a part did not stop in time.
var errAbandoned = errors.New("it did not stop in time")

// runParts runs all parts until ctx ends, a part fails, or a part returns without an error. Then it stops the parts one after the other in
// the given order, each within its own time. It returns the errors of all parts and logs none of them.
func runParts(ctx context.Context, log *slog.Logger, parts ...part) error {
	ctx, over := context.WithCancel(ctx)
	defer over()
	type running struct {
		part
		cancel context.CancelFunc
		done   chan struct{}
		err    error // to be read once done is closed
	}
	all := make([]*running, 0, len(parts))
	for _, p := range parts {
		// Not ctx's child: each part stops in its turn, not all at once.
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		r := &running{part: p, cancel: cancel, done: make(chan struct{})}
		all = append(all, r)
		go func() {
			defer close(r.done)
			defer over()
			if r.err = r.run(own); r.err != nil {
				log.Warn("a part has failed; the process exits with its error", "part", r.name)
			}
		}()
	}
	<-ctx.Done()
	log.Info("stopping")
	var failed []error
	for _, r := range all {
		r.cancel()
		limit := time.NewTimer(r.stop)
		select {
		case <-r.done:
			log.Debug("stopped", "part", r.name)
			if r.err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", r.name, r.err))
			}
		case <-limit.C: // abandoned: the process ends anyway
			failed = append(failed, fmt.Errorf("%s: %w (%v)", r.name, errAbandoned, r.stop))
		}
		limit.Stop()
	}
	return errors.Join(failed...)
}
