package backoff_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"lapse/internal/backoff"
)

func TestPausesDoubleUpToTheLimitAndBeginAgainAfterAReset(t *testing.T) {
	t.Parallel()
	b := backoff.Backoff{Min: 100 * time.Millisecond, Max: 700 * time.Millisecond}
	for range 2 {
		for i, nominal := range []time.Duration{100, 200, 400, 700, 700} {
			nominal *= time.Millisecond
			if got := b.Next(); got < nominal/2 || got > nominal {
				t.Errorf("pause %d is %s, want %s to %s", i, got, nominal/2, nominal)
			}
		}
		b.Reset()
	}
}

func TestPausesDifferFromOneAnother(t *testing.T) {
	t.Parallel()
	seen := map[time.Duration]bool{}
	for range 50 {
		b := backoff.Backoff{Min: time.Minute, Max: time.Hour}
		seen[b.Next()] = true
	}
	if len(seen) < 10 {
		t.Errorf("%d different first pauses of 50", len(seen))
	}
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("stopping")
		ctx, cancel := context.WithCancelCause(t.Context())
		b := backoff.Backoff{Min: time.Hour, Max: time.Hour}
		begun := time.Now()
		time.AfterFunc(time.Minute, func() { cancel(why) })
		if err := b.Wait(ctx); !errors.Is(err, why) {
			t.Errorf("got %v", err)
		}
		if waited := time.Since(begun); waited != time.Minute {
			t.Errorf("waited %s", waited)
		}
		if err := backoff.Sleep(t.Context(), time.Minute); err != nil {
			t.Errorf("a pause that passed: %v", err)
		}
	})
}
