package replication

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"lapse/internal/pgtest"
)

// freeze stops the server process of a stream, which goes on being connected. thaw lets it go on; the test's end does too.
func freeze(t *testing.T, s *Stream) (thaw func()) {
	t.Helper()
	pid := int(s.ServerPID())
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	thaw = func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
	t.Cleanup(thaw)
	return thaw
}

// impatient shortens what the stream waits for an answer. Nobody may use the stream meanwhile.
func impatient(s *Stream, ask, atMost time.Duration) {
	s.status.interval, s.liveness.askEvery, s.liveness.answerWithin = ask, ask, atMost
	s.received()
}

func TestAServerThatDoesNotAnswerIsGivenUp(t *testing.T) {
	t.Parallel()
	readers := map[string]func(ctx context.Context, s *Stream) error{
		"in Next": func(ctx context.Context, s *Stream) error {
			for {
				if _, err := s.Next(ctx); err != nil {
					return err
				}
			}
		},
		"in Wait": func(ctx context.Context, s *Stream) error { return s.Wait(ctx) },
	}
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		prepareDatabase(t, db, map[string]string{"item": itemsTable})
		for name, read := range readers {
			t.Run(name, func(t *testing.T) {
				s, err := Open(t.Context(), StreamConfig{ConnString: db.URL, Slot: db.Name})
				if err != nil {
					t.Fatal(err)
				}
				impatient(s, 50*time.Millisecond, 2*time.Second)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				thaw := freeze(t, s)
				err = read(ctx, s)
				if !errors.Is(err, errNoAnswer) || GradeOf(err) != Retry {
					t.Errorf("got %v", err)
				}
				if idle := s.Idle(); idle < 2*time.Second {
					t.Errorf("idle for %v", idle)
				}
				thaw()
				conn := db.Connect(t)
				eventually(t, "the slot is free", func() bool {
					state, err := ReadSlot(t.Context(), conn, db.Name)
					return err == nil && !state.Active
				})
			})
		}
	})
}

// A quiet server answers, so it is never idle for long.
func TestAQuietServerIsAskedAndAnswers(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		prepareDatabase(t, db, map[string]string{"item": itemsTable})
		s := openStream(t, db.URL, db.Name)
		impatient(s, 50*time.Millisecond, 5*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		for answers := 0; answers < 20; {
			m, err := s.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if m.Kind == KindKeepalive && !m.ReplyRequested {
				answers++
			}
		}
		s.liveness.askEvery = time.Hour
		s.Ask()
		if m, err := s.Next(ctx); err != nil || m.Kind != KindKeepalive {
			t.Errorf("asked, got %v, %v", m, err)
		}
	})
}

// A server that reads a large transaction and sends nothing of it is busy, not gone: it answers when half of wal_sender_timeout
// has passed, whatever the operator has set.
//
//lapse:long
func TestAServerInTheMiddleOfWhatItDoesNotSendIsNotTakenForOneThatIsGone(t *testing.T) {
	t.Parallel()
	for _, timeout := range []string{"0", "1h", "2s"} {
		t.Run("wal_sender_timeout "+timeout, func(t *testing.T) {
			t.Parallel()
			pgtest.OnSolo(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
				conn := prepareDatabase(t, db, map[string]string{"item": itemsTable})
				exec(t, conn, `alter database `+db.Name+` set wal_sender_timeout = '`+timeout+`'`,
					`create table other (id bigint primary key)`, `insert into item values (1, 'n')`)
				if timeout == "2s" {
					exec(t, conn, `insert into other select generate_series(1, 700000)`, `delete from other`, `delete from item`)
				}
				s := openStream(t, db.URL, db.Name)
				if got := s.senderTimeout; got <= 0 || got > senderTimeoutAtMost {
					t.Errorf("wal_sender_timeout of the stream is %v", got)
				}
				if timeout != "2s" {
					return
				}
				impatient(s, 100*time.Millisecond, 30*time.Second)
				var longest atomic.Int64
				read, stop := context.WithCancel(t.Context())
				watched := make(chan struct{})
				go func() {
					defer close(watched)
					poll := time.NewTicker(10 * time.Millisecond)
					defer poll.Stop()
					for {
						select {
						case <-poll.C:
							longest.Store(max(longest.Load(), int64(s.Idle())))
						case <-read.Done():
							return
						}
					}
				}()
				wantTransaction(t, s, "delete public.item 1")
				stop()
				<-watched
				t.Logf("idle for %v at most", time.Duration(longest.Load()))
			})
		})
	}
}
