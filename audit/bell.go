package audit

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// bell interrupts whoever reads the stream when the publisher has got further. The relay is one goroutine: it cannot
// wait for two things at once, and a read that is interrupted costs nothing.
type bell struct {
	rung atomic.Bool
	wake chan struct{} // for replication.Stream.Wait

	mu     sync.Mutex
	cancel context.CancelFunc

	stop context.CancelFunc
	done chan struct{}
}

// hang makes a bell that rings whenever progress has something, until silence is called.
func hang(progress <-chan struct{}) *bell {
	ctx, stop := context.WithCancel(context.Background())
	b := &bell{wake: make(chan struct{}, 1), stop: stop, done: make(chan struct{})}
	go func() {
		defer close(b.done)
		for {
			select {
			case <-progress:
				b.ring()
			case <-ctx.Done():
				return
			}
		}
	}()
	return b
}

func (b *bell) ring() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rung.Store(true)
	if b.cancel != nil {
		b.cancel()
	}
}

// hush takes the ringing away and reports whether there was any.
func (b *bell) hush() bool { return b.rung.Load() && b.rung.Swap(false) }

// listen returns a context that ends with ctx, at the deadline if there is one, or when the bell rings; at once if it has
// rung already.
func (b *bell) listen(ctx context.Context, deadline time.Time) context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cancel != nil {
		b.cancel()
	}
	if deadline.IsZero() {
		ctx, b.cancel = context.WithCancel(ctx)
	} else {
		ctx, b.cancel = context.WithDeadline(ctx, deadline)
	}
	if b.rung.Load() {
		b.cancel()
	}
	return ctx
}

func (b *bell) silence() {
	b.stop()
	<-b.done
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cancel != nil {
		b.cancel()
	}
}
