package replication

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgserver"
	"lapse/internal/pgtest"
)

// stopLimit is long enough for an overloaded machine, and shorter than a server waits for a stream that does not answer (senderTimeoutAtMost).
const stopLimit = 25 * time.Second

// stop stops the server in order, and returns how long it took. reading has ended by then.
func stop(t *testing.T, db *pgtest.DB, reading <-chan error) (took time.Duration, readError error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	began := time.Now()
	if err := db.Server.Stop(ctx, pgserver.Fast); err != nil {
		t.Fatalf("after %v: %v", time.Since(began), err)
	}
	took = time.Since(began)
	select {
	case readError = <-reading:
	case <-ctx.Done():
		t.Fatal("the reader has not noticed")
	}
	if took > stopLimit {
		t.Errorf("the server took %v to stop", took)
	}
	t.Logf("stopped in %v, the reader saw: %v", took, readError)
	return took, readError
}

// unpublished writes log that no publication lets through: a stream learns of it by keepalives only.
func unpublished(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	exec(t, conn, `create table if not exists other (id int)`, `insert into other select generate_series(1, 1000)`)
}

func restart(t *testing.T, db *pgtest.DB) {
	t.Helper()
	if err := db.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

//lapse:long
func TestAServerStopsAtOnceWhileAStreamIsOpen(t *testing.T) {
	t.Parallel()
	readers := map[string]func(ctx context.Context, s *Stream) error{
		"the reader confirms keepalives":                    confirmKeepalives,
		"the reader closes when the server stops":           closeWhenStopping,
		"the reader waits and closes when the server stops": waitAndClose,
		"the reader waits, and wakes up, meanwhile":         waitInTurns,
		"the reader confirms with a call from aside":        confirmFromAside,
	}
	pgtest.OnSolo(t, pgtest.Majors(t), func(t *testing.T, db *pgtest.DB) {
		prepareDatabase(t, db, map[string]string{"item": itemsTable})
		for name, read := range readers {
			t.Run(name, func(t *testing.T) {
				s := openStream(t, db.URL, db.Name)
				reading := make(chan error, 1)
				go func() { reading <- read(t.Context(), s) }()
				unpublished(t, db.Connect(t))
				_, err := stop(t, db, reading)
				if GradeOf(err) != Retry {
					t.Errorf("%v would not be tried again", err)
				}
				_, err = Open(t.Context(), StreamConfig{ConnString: db.URL, Slot: db.Name})
				if GradeOf(err) != Retry {
					t.Errorf("%v, of a server that is not there, would not be tried again", err)
				}
				restart(t, db)
				closeStream(t, openStream(t, db.URL, db.Name))
			})
		}
		t.Run("the reader waits before a backlog", func(t *testing.T) { stopBeforeABacklog(t, db) })
	})
}

func confirmKeepalives(ctx context.Context, s *Stream) error {
	for {
		m, err := s.Next(ctx)
		if err != nil {
			return err
		}
		if m.Kind == KindKeepalive && !m.Open {
			s.Confirm(m.WALEnd)
			if m.ReplyRequested {
				if err := s.flush(ctx); err != nil {
					return err
				}
			}
		}
	}
}

// confirmFromAside confirms without flush: the next status of Next carries it.
func confirmFromAside(ctx context.Context, s *Stream) error {
	for {
		m, err := s.Next(ctx)
		if err != nil {
			return err
		}
		if m.Kind == KindKeepalive && !m.Open {
			go s.Confirm(m.WALEnd)
		}
	}
}

func closeWhenStopping(ctx context.Context, s *Stream) error {
	for {
		m, err := s.Next(ctx)
		if err != nil {
			return err
		}
		if m.Stopping {
			return errors.Join(ErrStopping, s.Close(ctx))
		}
	}
}

func waitAndClose(ctx context.Context, s *Stream) error {
	err := s.Wait(ctx)
	return errors.Join(err, s.Close(ctx))
}

// waitInTurns takes messages now and then, never confirms, and closes when the server stops.
func waitInTurns(ctx context.Context, s *Stream) error {
	for {
		timer := time.AfterFunc(150*time.Millisecond, s.Wake)
		err := s.Wait(ctx)
		timer.Stop()
		if errors.Is(err, ErrWoken) {
			soon, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			_, err = s.Next(soon)
			cancel()
			if errors.Is(err, context.DeadlineExceeded) {
				err = nil
			}
		}
		if err != nil {
			return errors.Join(err, s.Close(ctx))
		}
	}
}

// stopBeforeABacklog has more in the stream than anybody reads: the server cannot even ask.
func stopBeforeABacklog(t *testing.T, db *pgtest.DB) {
	const rows = 60000
	conn := db.Connect(t)
	exec(t, conn, `create table large (id text primary key)`,
		fmt.Sprintf(`insert into large select repeat('x', 400) || i from generate_series(1, %d) i`, rows))
	join(t, conn, "large")
	s := openStream(t, db.URL, db.Name)
	reading := make(chan error, 1)
	go func() { reading <- waitAndClose(t.Context(), s) }()
	exec(t, conn, `delete from large`)
	eventually(t, "the server cannot send", func() bool {
		var stuck bool
		err := conn.QueryRow(t.Context(), `
			select coalesce(wait_event = 'WalSenderWriteData', false) from pg_stat_activity where pid = $1`, s.ServerPID()).
			Scan(&stuck)
		return err == nil && stuck
	})
	if _, err := stop(t, db, reading); !errors.Is(err, ErrStopping) {
		t.Errorf("got %v", err)
	}
	restart(t, db)
	s = openStream(t, db.URL, db.Name)
	got, err := readTransaction(t.Context(), s)
	if err != nil || len(got.rows) != rows {
		t.Errorf("after the restart: %d rows, %v", len(got.rows), err)
	}
}

//lapse:long
func TestAnIdleStreamOutlivesTheServersTimeout(t *testing.T) {
	t.Parallel()
	pgtest.On(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		conn := prepareDatabase(t, db, map[string]string{"item": itemsTable})
		exec(t, conn, `insert into item values (1, 'n')`)
		db.Exec(t, `alter database `+db.Name+` set wal_sender_timeout = '2s'`)
		for name, idle := range map[string]func(ctx context.Context, s *Stream) error{
			"in Next": func(ctx context.Context, s *Stream) error {
				for {
					if _, err := s.Next(ctx); err != nil {
						return err
					}
				}
			},
			"in Wait": func(ctx context.Context, s *Stream) error { return s.Wait(ctx) },
		} {
			t.Run(name, func(t *testing.T) {
				s := openStream(t, db.URL, db.Name)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				defer cancel()
				if err := idle(ctx, s); !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("got %v", err)
				}
				exec(t, conn, `delete from item`, `insert into item values (1, 'n')`)
				wantTransaction(t, s, "delete public.item 1")
				s.Confirm(s.sent)
			})
		}
	})
}
