package page

import (
	"context"
	"sync"
	"time"
)

// kept is a value that is read when somebody asks for it, and not more often than every fresh. What takes long to read is read less often, so
// that a page which is open all day costs the database a twentieth of one session. Safe for concurrent use.
type kept[T any] struct {
	ctx   context.Context // the page's: a reading goes on when the request that began it is gone
	fresh time.Duration
	limit time.Duration // of one reading
	read  func(ctx context.Context) (T, error)

	mutex   sync.Mutex
	value   T
	at      time.Time     // when value was read; zero: never
	next    time.Time     // before then nothing is read
	err     error         // of the last reading
	reading chan struct{} // closed when the reading under way has ended; nil for none
}

const (
	// share is how many times as long as a reading nothing is read after it, and longest the longest that this may make it.
	share   = 20
	longest = 30 * time.Second
)

// known is what is known of a value.
type known[T any] struct {
	Value T
	At    time.Time // when it was read; zero: never
	Err   error     // why it is no newer; nil where it is fresh, or is being read
}

// get returns what is known, after it has waited for something newer for as long as patience.
func (k *kept[T]) get(ctx context.Context, patience time.Duration) known[T] {
	k.mutex.Lock()
	if time.Now().Before(k.next) {
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
	began := time.Now()
	value, err := k.read(ctx)
	k.mutex.Lock()
	defer k.mutex.Unlock()
	now := time.Now()
	k.next, k.err, k.reading = now.Add(k.fresh), err, nil
	if err == nil {
		k.value, k.at = value, now
		k.next = now.Add(max(k.fresh, min(share*now.Sub(began), longest)))
	}
	close(reading)
}
