package replication

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

func TestDuringReturnsWhatWorkReturnsAndLeavesTheRest(t *testing.T) {
	t.Parallel()
	s, there := pipedStream(t)
	why := errors.New("why")
	for _, took := range []time.Duration{0, beforeReading / 2, 2 * beforeReading} {
		began := time.Now()
		err := s.During(t.Context(), func(context.Context) error {
			<-time.After(took)
			return why
		})
		if !errors.Is(err, why) || time.Since(began) > took+patience {
			t.Errorf("%v, after %v instead of %v", err, time.Since(began), took)
		}
	}
	write(t, there, oneRow(1, "1"))
	err := s.During(t.Context(), func(context.Context) error {
		s.Wake()
		<-time.After(2 * beforeReading)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if key, wakes := nextKey(t, s); key != "1" || wakes != 1 {
		t.Errorf("row %q after %d wakes", key, wakes)
	}
	ctx, cancel := context.WithCancel(t.Context())
	timer := time.AfterFunc(2*beforeReading, cancel)
	defer timer.Stop()
	ended := false
	err = s.During(ctx, func(ctx context.Context) error {
		<-ctx.Done()
		ended = true
		return nil
	})
	if err != nil && !errors.Is(err, context.Canceled) || !ended {
		t.Errorf("cancelled: %v, ended %v", err, ended)
	}
}

// askedTwice is what a server sends that shuts down, and goes on sending when it is answered.
func askedTwice(t *testing.T, there net.Conn, until <-chan struct{}) {
	t.Helper()
	for {
		if _, err := there.Write(framed('d', keepaliveFrame(1, 1).body)); err != nil {
			return
		}
		select {
		case <-until:
			return
		case <-time.After(answerPause):
		}
	}
}

func TestAServerThatStopsIsNotKeptWaitingForWork(t *testing.T) {
	t.Parallel()
	s, there := pipedStream(t)
	quit := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() { askedTwice(t, there, quit) })
	began := time.Now()
	err := s.During(t.Context(), func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	took := time.Since(began)
	close(quit)
	asking.Wait()
	if !errors.Is(err, errOverdue) || GradeOf(err) != Retry {
		t.Errorf("got %v", err)
	}
	if took < StalledAtMost || took > keptWaitingAtMost+patience {
		t.Errorf("kept waiting for %v", took)
	}
}

func TestAServerThatStopsIsKeptWaitingWhileSomethingMovesAndNotForLong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		after   time.Duration // since the last sign
		first   time.Duration // since the first
		stalled time.Duration
		overdue bool
	}{
		"at the first sign":                     {0, 0, 0, false},
		"after a while":                         {0, keptWaitingAtMost - 1, StalledAtMost - 1, false},
		"nothing moves":                         {0, 0, StalledAtMost, true},
		"too long":                              {0, keptWaitingAtMost, 0, true},
		"too long, and no sign since":           {signsLast, signsLast, 0, true},
		"something else, long ago":              {signsLast + 1, signsLast + 1, time.Hour, false},
		"it never shut down, and nothing moves": {1 << 62, 1 << 62, time.Hour, false},
	} {
		signs := stopSigns{first: noon.Add(-c.first), last: noon.Add(-c.after)}
		if err := signs.check(noon, c.stalled); errors.Is(err, errOverdue) != c.overdue {
			t.Errorf("%s: %v", name, err)
		}
		if repeat := signs.repeatAt(noon); repeat.IsZero() != (c.after > signsLast) {
			t.Errorf("%s: told again at %v", name, repeat)
		}
	}
	var signs stopSigns
	if err := signs.check(noon, time.Hour); err != nil {
		t.Errorf("without a sign: %v", err)
	}
	signs.note(noon)
	signs.note(noon.Add(signsLast))
	if !signs.first.Equal(noon) {
		t.Error("two signs are not of one shutdown")
	}
	signs.note(noon.Add(2*signsLast + 1))
	if !signs.first.Equal(noon.Add(2*signsLast + 1)) {
		t.Error("a sign long after the others is of the same shutdown")
	}
}
