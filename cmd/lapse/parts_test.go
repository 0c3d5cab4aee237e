package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var silent = slog.New(slog.DiscardHandler)

// stage records who stops when.
type stage struct {
	mu    sync.Mutex
	ended []string
}

// player is a part that takes a while to stop.
func (s *stage) player(name string, takes time.Duration) part {
	return part{name: name, stop: time.Minute, run: func(ctx context.Context) error {
		<-ctx.Done()
		timer := time.NewTimer(takes)
		defer timer.Stop()
		<-timer.C
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ended = append(s.ended, name)
		return nil
	}}
}

func TestPartsStopOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var s stage
		ended := make(chan error, 1)
		go func() {
			ended <- runParts(ctx, silent, s.player("executor", 3*time.Second), s.player("audit", time.Second), s.player("http", 0))
		}()
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("told to stop, and it ended with %v", err)
		}
		if want := []string{"executor", "audit", "http"}; !slices.Equal(s.ended, want) {
			t.Errorf("stopped in the order of %v, want %v", s.ended, want)
		}
	})
}

func TestAPartThatFailsStopsTheOthersInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s stage
		lost := errors.New("the log was lost")
		failing := part{name: "audit", stop: time.Minute, run: func(context.Context) error { return lost }}
		err := runParts(t.Context(), silent, s.player("executor", time.Second), failing, s.player("http", 0))
		if !errors.Is(err, lost) || !strings.HasPrefix(err.Error(), "audit: ") {
			t.Errorf("got %v, want the failing part and its error", err)
		}
		if want := []string{"executor", "http"}; !slices.Equal(s.ended, want) {
			t.Errorf("stopped in the order of %v, want %v", s.ended, want)
		}
	})
}

func TestTheErrorsOfAllPartsAreReturnedAndNoneIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost, late := errors.New("the log was lost"), errors.New("a batch could not be rolled back")
		failing := part{name: "audit", stop: time.Minute, run: func(context.Context) error { return lost }}
		following := part{name: "executor", stop: time.Minute, run: func(ctx context.Context) error { <-ctx.Done(); return late }}
		release := make(chan struct{})
		stuck := part{name: "http", stop: time.Minute, run: func(context.Context) error { <-release; return nil }}
		var logged strings.Builder
		err := runParts(t.Context(), slog.New(slog.NewTextHandler(&logged, nil)), following, failing, stuck)
		if !errors.Is(err, lost) || !errors.Is(err, late) || !errors.Is(err, errAbandoned) {
			t.Errorf("got %v", err)
		}
		if strings.Contains(logged.String(), lost.Error()) || strings.Contains(logged.String(), late.Error()) {
			t.Errorf("logged, and returned too:\n%s", logged.String())
		}
		close(release)
	})
}

func TestAPartThatDoesNotStopIsNotWaitedForForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		var s stage
		stuck := part{name: "executor", stop: 15 * time.Second, run: func(context.Context) error { <-release; return nil }}
		ended := make(chan error, 1)
		go func() { ended <- runParts(ctx, silent, stuck, s.player("audit", time.Second)) }()
		synctest.Wait()
		began := time.Now()
		cancel()
		err := <-ended
		if !errors.Is(err, errAbandoned) || !strings.Contains(err.Error(), "executor") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took != 16*time.Second {
			t.Errorf("it took %v, want the stuck part's 15 s and the other's second", took)
		}
		if !slices.Equal(s.ended, []string{"audit"}) {
			t.Errorf("the other part was not stopped in order: %v", s.ended)
		}
		close(release)
	})
}

func TestReadyzSaysWhyNot(t *testing.T) {
	why := errors.New("nobody has read the slot for a minute")
	failing := readiness{part: "executor", ready: func() error { return why }}
	fine := readiness{part: "audit", ready: func() error { return nil }}
	standing := readiness{"audit", fine.ready, func() string { return "standing by: another auditor reads the slot" }}
	for _, c := range []struct {
		parts  []readiness
		status int
		body   string
	}{
		{[]readiness{fine}, http.StatusOK, "ok\n"},
		{[]readiness{fine, standing}, http.StatusOK, "ok\naudit: standing by: another auditor reads the slot\n"},
		{[]readiness{standing, failing}, http.StatusServiceUnavailable, "executor: nobody has read the slot for a minute\n"},
		{[]readiness{failing, fine}, http.StatusServiceUnavailable, "executor: nobody has read the slot for a minute\n"},
		{
			[]readiness{failing, {part: "audit", ready: failing.ready}},
			http.StatusServiceUnavailable,
			"executor: nobody has read the slot for a minute\naudit: nobody has read the slot for a minute\n",
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		registry, err := newRegistry(nil)
		if err != nil {
			t.Fatal(err)
		}
		w, err := listen(ctx, "127.0.0.1:0", registry, c.parts, nil, silent)
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- w.Run(ctx) }()
		address := "http://" + w.listener.Addr().String()
		if status, body := get(t, address+"/readyz"); status != c.status || body != c.body {
			t.Errorf("/readyz says %d %q, want %d %q", status, body, c.status, c.body)
		}
		if status, _ := get(t, address+"/healthz"); status != http.StatusOK {
			t.Errorf("/healthz says %d", status)
		}
		if _, body := get(t, address+"/metrics"); !strings.Contains(body, "go_goroutines") {
			t.Error("/metrics does not have the process's own")
		}
		if status, _ := get(t, address+"/"); status != http.StatusNotFound {
			t.Errorf("/ says %d", status)
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestAnAddressInUseIsAnErrorBeforeAnythingRuns(t *testing.T) {
	first, err := listen(t.Context(), "127.0.0.1:0", prometheus.NewRegistry(), nil, nil, silent)
	if err != nil {
		t.Fatal(err)
	}
	defer first.listener.Close()
	_, err = listen(t.Context(), first.listener.Addr().String(), prometheus.NewRegistry(), nil, nil, silent)
	if err == nil || !strings.Contains(err.Error(), "choose another address") {
		t.Errorf("got %v", err)
	}
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}
