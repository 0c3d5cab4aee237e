package page

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Ten people who look at once, and again and again, are one reading each fresh.
func TestTenPeopleAreOneReading(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var read atomic.Int64
		k := &kept[int64]{ctx: t.Context(), fresh: 3 * time.Second, limit: time.Minute, read: func(context.Context) (int64, error) {
			time.Sleep(100 * time.Millisecond) //nolint:forbidigo // the time of the bubble
			return read.Add(1), nil
		}}
		var people sync.WaitGroup
		for range 10 {
			people.Go(func() {
				for range 100 { // for ten seconds
					if got := k.get(t.Context(), time.Second); got.Err != nil || got.Value == 0 {
						t.Errorf("got %+v", got)
					}
					time.Sleep(100 * time.Millisecond) //nolint:forbidigo // the time of the bubble
				}
			})
		}
		people.Wait()
		if n := read.Load(); n < 3 || n > 4 {
			t.Errorf("it was read %d times in ten seconds", n)
		}
	})
}

// What does not come in time is shown as it was, and its age with it; what fails is not asked again at once.
func TestWhatIsKnownIsShownWhileNothingNewerComes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failed := errors.New("gone")
		takes, answer := time.Duration(0), error(nil)
		var asked atomic.Int64
		k := &kept[int64]{ctx: t.Context(), fresh: 3 * time.Second, limit: 8 * time.Second, read: func(ctx context.Context) (int64, error) {
			n := asked.Add(1)
			select {
			case <-time.After(takes):
				return n, answer
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}}
		at := func(step string, wantValue, wantAsked int64, want error) {
			t.Helper()
			begin := time.Now()
			got := k.get(t.Context(), time.Second)
			if got.Value != wantValue || asked.Load() != wantAsked || !errors.Is(got.Err, want) || (want == nil) != (got.Err == nil) {
				t.Errorf("%s: %+v after %d readings, want %d after %d, %v", step, got, asked.Load(), wantValue, wantAsked, want)
			}
			if waited := time.Since(begin); waited > time.Second {
				t.Errorf("%s: it waited %s", step, waited)
			}
		}
		at("first", 1, 1, nil)
		at("at once", 1, 1, nil)
		pass := func(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // the time of the bubble
		pass(4 * time.Second)
		takes = time.Hour
		at("slow", 1, 2, errSlow)
		pass(2 * time.Second)
		at("still slow, and asked once", 1, 2, errSlow)
		pass(6 * time.Second)
		at("given up", 1, 2, context.DeadlineExceeded)
		pass(4 * time.Second)
		takes, answer = 0, failed
		at("down", 1, 3, failed)
		at("down, and not asked again", 1, 3, failed)
		pass(4 * time.Second)
		answer = nil
		at("back", 4, 4, nil)
	})
}

// A request that is gone waits for nothing, and what it began goes on.
func TestAReadingOutlivesItsRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := &kept[string]{ctx: t.Context(), fresh: time.Minute, limit: time.Minute, read: func(context.Context) (string, error) {
			time.Sleep(500 * time.Millisecond) //nolint:forbidigo // the time of the bubble
			return "read", nil
		}}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if got := k.get(gone, time.Second); got.Value != "" || !errors.Is(got.Err, errSlow) {
			t.Errorf("got %+v", got)
		}
		if got := k.get(t.Context(), time.Second); got.Value != "read" || got.Err != nil {
			t.Errorf("got %+v", got)
		}
	})
}

// What takes long is read less often, but every half minute at least.
func TestALongReadingIsRareAndNotTooRare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for takes, want := range map[time.Duration]int64{10 * time.Millisecond: 19, 500 * time.Millisecond: 6, 5 * time.Second: 2} { // in a minute
			var read atomic.Int64
			k := &kept[int64]{ctx: t.Context(), fresh: 3 * time.Second, limit: time.Minute, read: func(context.Context) (int64, error) {
				time.Sleep(takes) //nolint:forbidigo // the time of the bubble
				return read.Add(1), nil
			}}
			for began := time.Now(); time.Since(began) < time.Minute; {
				k.get(t.Context(), 10*time.Second)
				time.Sleep(50 * time.Millisecond) //nolint:forbidigo // the time of the bubble
			}
			if n := read.Load(); n < want || n > want+2 {
				t.Errorf("what takes %s was read %d times in a minute, want about %d", takes, n, want)
			}
		}
	})
}
