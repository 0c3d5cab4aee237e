package executor

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"lapse/internal/pgtest"
)

// logBuffer keeps what several workers log. Safe for concurrent use.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Count(b.text.String(), text)
}

func (b *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// The login's connections are enough for one worker, or for one and a half.
func TestWithConnectionsForOneOfTwoWorkersOnceDeletesAll(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		two(t, db, 100)
		for _, limit := range []string{"2", "3"} {
			db.Exec(t, "alter role lapse_executor connection limit "+limit)
			for range 3 {
				db.Exec(t, "insert into a select g, now() - interval '40 days' from generate_series(10001, 10300) g", "delete from lapse.run", "delete from lapse.looked")
				log := &logBuffer{}
				s, err := newExecutor(t, db, func(c *Config) { c.Limits.Workers, c.Logger = 2, log.logger() }).Once(t.Context(), nil)
				if err != nil || len(s.Policies) != 2 {
					t.Errorf("limit %s: got %+v, %v", limit, s, err)
				}
				if n := one[int](t, db, "select (select count(*) from a) + (select count(*) from b)"); n != 0 {
					t.Errorf("limit %s: %d rows are left", limit, n)
				}
				if n := log.count("a worker has no connection"); n > 1 {
					t.Errorf("limit %s: the worker without a connection was reported %d times", limit, n)
				}
			}
		}
	})
}

func TestWithConnectionsForOneOfTwoWorkersRunDeletesAllAndIsReadyThroughout(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, []int{18}, func(t *testing.T, db *pgtest.DB) {
		two(t, db, 800)
		db.Exec(t, "alter role lapse_executor connection limit 2")
		log := &logBuffer{}
		e := newExecutor(t, db, func(c *Config) { c.Limits.Workers, c.Logger = 2, log.logger() })
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		eventually(t, "the executor is ready", func() bool { return e.Ready() == nil })
		eventually(t, "all rows are gone", func() bool {
			if err := e.Ready(); err != nil {
				t.Errorf("it is not ready: %v", err)
			}
			return one[int](t, db, "select (select count(*) from a) + (select count(*) from b)") == 0 && log.count("a worker has no connection") > 0
		})
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if n := log.count("a worker has no connection"); n != 1 {
			t.Errorf("the worker without a connection was reported %d times", n)
		}
		if n := log.count("no connection to the database"); n != 1 { // part of the other text
			t.Errorf("a missing connection was reported %d times", n)
		}
	})
}

func TestOneWorkerConnectsForTheFirstReading(t *testing.T) {
	t.Parallel()
	s, list := schedule(2)
	if task := s.next(false); !task.connect || !task.first {
		t.Fatalf("the first worker gets %+v, want to connect", task)
	}
	waits := s.next(false)
	if waits.connect || waits.changed == nil {
		t.Fatalf("the second worker gets %+v, want to wait", waits)
	}
	s.connectEnded() // it failed
	select {
	case <-waits.changed:
	default:
		t.Error("nobody is woken after the failure")
	}
	if task := s.next(false); !task.first {
		t.Errorf("after a failure: %+v, want to connect", task)
	}
	s.hasSession(0, true)
	s.connectEnded()
	if task := s.next(false); task.connect {
		t.Errorf("while another worker has a session: %+v, want to wait for the list", task)
	}
	step(t, s, list)
	if task := s.next(false); !task.connect || task.first {
		t.Errorf("after the list: %+v, want to connect", task)
	}
}
