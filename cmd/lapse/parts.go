package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"
)

// part is something that runs until its context ends. A part whose run returns an error cannot go on, and with it
// nothing can: a person must look.
type part struct {
	name string
	run  func(ctx context.Context) error
	// stop is how long run may take to return after its context has ended.
	stop time.Duration
}

// errAbandoned says that a part did not stop in its time.
var errAbandoned = errors.New("it did not stop in time")

// runParts runs all parts until ctx ends or one of them fails. Then it stops them one after the other, in the order
// given, each in its own time, and returns what went wrong. A part that ends by itself without an error (what it had to
// do is done) ends the others too.
func runParts(ctx context.Context, log *slog.Logger, parts ...part) error {
	ctx, over := context.WithCancel(ctx)
	defer over()
	var group errgroup.Group
	type running struct {
		part
		cancel context.CancelFunc
		done   chan struct{}
	}
	all := make([]running, 0, len(parts))
	for _, p := range parts {
		// Not ctx's child: a part stops when it is its turn, not when the first one does.
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		defer cancel()
		r := running{part: p, cancel: cancel, done: make(chan struct{})}
		all = append(all, r)
		group.Go(func() error {
			defer close(r.done)
			defer over()
			if err := r.run(own); err != nil {
				log.Error("a part has failed; the process ends", "part", r.name, "error", err)
				return fmt.Errorf("%s: %w", r.name, err)
			}
			return nil
		})
	}
	<-ctx.Done()
	log.Info("stopping")
	var abandoned error
	for _, r := range all {
		r.cancel()
		patience := time.NewTimer(r.stop)
		select {
		case <-r.done:
			log.Debug("stopped", "part", r.name)
		case <-patience.C:
			abandoned = errors.Join(abandoned, fmt.Errorf("%s: %w (%v)", r.name, errAbandoned, r.stop))
		}
		patience.Stop()
	}
	if abandoned != nil {
		return abandoned // the group cannot be waited for; the process ends
	}
	return group.Wait()
}
