package page

import (
	"context"
	"sync"
	"time"
)

// kept is a value that is read on request, at most once every fresh. A value that takes long to read is read less often, so that a page
// which is open all day costs the database a twentieth of one session. Safe for concurrent use.
type kept[T any] struct {
	ctx   context.Context // the page's: a reading continues after the request that began it is gone
	fresh time.Duration
	limit time.Duration // of one reading
	read  func(ctx context.Context) (T, error)

	mutex   sync.Mutex
	value   T
	at      time.Time     // when value was read; zero for never
	next    time.Time     // the earliest time of the next reading
	err     error         // of the last reading
	reading chan struct{} // closed when the current reading ends; nil if there is none
}

const (
	// share says for how many times a reading's length no other one begins, and longest limits that time.
	share   = 20
	longest = 30 * time.Second
)

// known is a value and its age.
type known[T any] struct {
	Value T
	At    time.Time // when it was read; zero for never
	Err   error     // why it is not newer; nil if it is fresh, or is being read
}

// get returns the value. It waits for a newer one up to patience.
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

// renew reads the value once.
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
