//go:build long

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/fixture"
	"lapse/internal/kafkaserver"
	"lapse/internal/pgserver"
)

// begun is a demonstration at work, whose temporary folders are in one of its own.
type begun struct {
	t    *testing.T
	temp string
	stop context.CancelFunc
	done chan error

	mu   sync.Mutex
	told bytes.Buffer
}

func (b *begun) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.told.Write(p)
}

func (b *begun) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.told.String()
}

// begin builds lapse and begins a demonstration with it. It keeps the test from being parallel: TMPDIR is the process's.
func begin(t *testing.T, keep bool, http string) *begun {
	t.Helper()
	_, missingKafka := kafkaserver.Find()
	_, missingPostgres := pgserver.Find(18)
	fixture.Missing(t, errors.Join(missingKafka, missingPostgres))
	return beginWith(t, fixture.BuildLapse(t), keep, http)
}

func beginWith(t *testing.T, lapse string, keep bool, http string) *begun {
	t.Helper()
	// A short name, since it becomes part of a socket's, in a folder that PostgreSQL's user may enter.
	temp, err := os.MkdirTemp("", "d")
	if err := errors.Join(err, os.Chmod(temp, 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(temp) })
	t.Setenv("TMPDIR", temp)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	b := &begun{t: t, temp: temp, stop: cancel, done: make(chan error, 1)}
	d := &demonstration{lapse: lapse, keep: keep, http: http, out: b}
	go func() { b.done <- d.run(ctx) }()
	t.Cleanup(cancel)
	return b
}

// tells waits until the demonstration has told something.
func (b *begun) tells(what string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience+time.Minute)
	defer cancel()
	err := fixture.Until(ctx, func() (bool, error) {
		select {
		case err := <-b.done:
			b.done <- err
			return false, fmt.Errorf("it has ended: %w", errors.Join(errors.New("too early"), err))
		default:
			return strings.Contains(b.text(), what), nil
		}
	})
	if err != nil {
		b.t.Fatalf("wait for %q: %v\n%s", what, err, b.text())
	}
}

// end waits for the end, and wants nothing to be left.
func (b *begun) end() error {
	b.t.Helper()
	select {
	case err := <-b.done:
		left, errRead := os.ReadDir(b.temp)
		if len(left) > 0 || errRead != nil {
			b.t.Errorf("in the temporary folder are %v, %v; want nothing", left, errRead)
		}
		return err
	case <-time.After(time.Minute):
		b.t.Fatalf("the demonstration does not end\n%s", b.text())
		return nil
	}
}

// freePort is an address that nobody listens at.
func freePort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

var addresses = regexp.MustCompile(`PostgreSQL  (\S+)\n   topics      (\S+)\n   page        \S+\n   metrics     (\S+)\n`)

// A machine with neither Java nor Maven: the topics are in a folder.
func TestTheStoryIsToldWithoutJava(t *testing.T) {
	_, missing := pgserver.Find(18)
	fixture.Missing(t, missing)
	lapse := fixture.BuildLapse(t)
	t.Setenv("PATH", t.TempDir())
	b := beginWith(t, lapse, false, "")
	b.tells("\n12. ")
	if err := b.end(); err != nil {
		t.Fatal(err)
	}
	told := b.text()
	for group, n := range expected {
		if !strings.Contains(told, fmt.Sprintf("     %-34s %10d %10d\n", group, n, n)) {
			t.Errorf("the count of %s is missing, or is not %d", group, n)
		}
	}
	if !strings.Contains(told, "Without Kafka the topics are files of a folder (sink: dir: in lapse.yaml): java, which Kafka runs on, is not installed") {
		t.Error("it does not say which sink it has taken")
	}
}

func TestTheStoryIsToldCountedAndKeptUntilItIsInterrupted(t *testing.T) {
	b := begin(t, true, freePort(t))
	b.tells("press Ctrl-C")
	told := b.text()
	for step := 1; step <= 12; step++ {
		if !strings.Contains(told, fmt.Sprintf("\n%d. ", step)) {
			t.Errorf("step %d is missing", step)
		}
	}
	for group, n := range expected {
		if !strings.Contains(told, fmt.Sprintf("     %-34s %10d %10d\n", group, n, n)) {
			t.Errorf("the count of %s is missing, or is not %d", group, n)
		}
	}
	if !strings.Contains(told, "Each deletion is in its topic, once") || !strings.Contains(told, "permission denied") {
		t.Error("the end of the count or the refusal is missing")
	}

	if !strings.Contains(told, "warning: 1 of 3 keys match no row of public.sessions now: number 3") || !strings.Contains(told, "session 1010, not seen for 31 days, with tag mobile") {
		t.Error("the hold, or what it kept, is missing")
	}

	if !strings.Contains(told, "carts-90d: breaker: 600 of about 1000 rows were due") || !strings.Contains(told, "lapse policy arm carts-90d --accept 600") {
		t.Error("the tripped breaker is missing")
	}

	if !strings.Contains(told, "id=42") || !strings.Contains(told, "payment_session_fkey") {
		t.Error("the row that resists is missing")
	}
	if !strings.Contains(told, "verifies: ") || strings.Contains(told, "\x1b[") {
		t.Error("the export does not verify, or there are colors where there is no terminal")
	}

	kept := addresses.FindStringSubmatch(told)
	if kept == nil {
		t.Fatal("no addresses")
	}
	conn, err := pgx.Connect(t.Context(), kept[1])
	if err != nil {
		t.Fatal(err)
	}
	if left := fixture.One[int](t, conn, `select count(*) from public.sessions where last_seen + interval '30 days' <= now()`); left != 3 {
		t.Errorf("%d sessions that are due are left, want the two that are held and the one in quarantine", left)
	}
	_ = conn.Close(t.Context())
	fixture.Eventually(t, "the metrics are served", func() bool {
		answer, err := http.Get(kept[3])
		if err != nil {
			return false
		}
		text, err := io.ReadAll(answer.Body)
		return errors.Join(err, answer.Body.Close()) == nil && bytes.Contains(text, []byte("lapse_"))
	})

	b.stop()
	if err := b.end(); err != nil {
		t.Errorf("interrupted while it was kept: %v", err)
	}
	for _, address := range []string{kept[2], strings.Split(strings.TrimPrefix(kept[3], "http://"), "/")[0]} {
		if conn, err := net.Dial("tcp", address); err == nil {
			t.Errorf("somebody still listens at %s", conn.RemoteAddr())
		}
	}
	if _, err := pgx.Connect(t.Context(), kept[1]); err == nil {
		t.Error("PostgreSQL is still there")
	}
	if t.Failed() {
		t.Log(b.text())
	}
}

func TestAnInterruptedStoryLeavesNothing(t *testing.T) {
	b := begin(t, false, "")
	b.tells("\n2. ")
	b.stop()
	if err := b.end(); err == nil || !strings.Contains(err.Error(), "step ") {
		t.Errorf("got %v, want the step that was interrupted", err)
	}
}
