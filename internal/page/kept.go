package page

import (
	"context"
	"sync"
	"time"
)

// kept is a value that is read when somebody asks for it, and not more often than every fresh. Safe for concurrent use.
type kept[T any] struct {
	ctx   context.Context // the page's: a reading goes on when the request that began it is gone
	fresh time.Duration
	limit time.Duration // of one reading
	read  func(ctx context.Context) (T, error)

	mutex   sync.Mutex
	value   T
	at      time.Time     // when value was read; zero: never
	tried   time.Time     // when the last reading ended
	err     error         // of the last reading
	reading chan struct{} // closed when the reading under way has ended; nil for none
}

// known is what is known of a value.
type known[T any] struct {
	Value T
	At    time.Time // when it was read; zero: never
	Err   error     // why it is no newer; nil where it is fresh, or is being read
}

// get returns what is known, after it has waited for something newer for as long as patience.
func (k *kept[T]) get(ctx context.Context, patience time.Duration) known[T] {
	k.mutex.Lock()
	if time.Since(k.tried) < k.fresh {
		defer k.mutex.Unlock()
		return known[T]{k.value, k.at, k.err}
	}
	if k.reading == nil {
		k.reading = make(chan struct{})
		go k.renew(k.reading)
	}
	reading := k.reading
	k.mutex.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-reading:
	case <-timer.C:
	case <-ctx.Done():
	}
	k.mutex.Lock()
	defer k.mutex.Unlock()
	err := k.err
	if err == nil && k.reading == reading {
		err = errSlow
	}
	return known[T]{k.value, k.at, err}
}

// renew reads once.
func (k *kept[T]) renew(reading chan struct{}) {
	ctx, cancel := context.WithTimeout(k.ctx, k.limit)
	defer cancel()
	value, err := k.read(ctx)
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.tried, k.err, k.reading = time.Now(), err, nil
	if err == nil {
		k.value, k.at = value, k.tried
	}
	close(reading)
}
