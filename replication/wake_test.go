package replication

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"lapse/internal/pgserver"
	"lapse/internal/pgtest"
	"lapse/schemas"
)

// pipedStream is a stream whose server is the test: what is written to there arrives, and what the stream sends is dropped.
func pipedStream(t *testing.T) (s *Stream, there net.Conn) {
	t.Helper()
	here, there := loopback(t)
	s = streamOn(t, here)
	t.Cleanup(func() { _ = s.fail(errClosed) })
	return s, there
}

func write(t *testing.T, conn net.Conn, bytes []byte) {
	t.Helper()
	if _, err := conn.Write(bytes); err != nil {
		t.Error(err)
	}
}

// oneRow is a transaction that deletes the row named key, in the bytes of the protocol.
func oneRow(at int, key string) []byte {
	var all []byte
	for _, m := range []encoder{
		beginMessage(schemas.LSN(at), 7), relationMessage(1, "public", "item", Column{Name: "id", TypeOID: 20, TypeMod: -1, Key: true}),
		deleteMessage(1, 'K', key), commitMessage(schemas.LSN(at), schemas.LSN(at+1)),
	} {
		all = append(all, dataMessage(schemas.LSN(at), m)...)
	}
	return all
}

// nextKey reads up to the end of a transaction of oneRow, through any wakes, and counts them.
func nextKey(t *testing.T, s *Stream) (key string, wakes int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		switch m, err := s.Next(ctx); {
		case errors.Is(err, ErrWoken):
			wakes++
		case err != nil:
			t.Fatal(err)
		case m.Kind == KindChange:
			key = string(m.Change.Old[0].Bytes)
		case m.Kind == KindCommit:
			return key, wakes
		}
	}
}

func wantWoken(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, ErrWoken) {
		t.Fatalf("got %v, want ErrWoken", err)
	}
}

func TestWakesThatComeWhileNobodyWaitsAreOneAndAreNotLost(t *testing.T) {
	t.Parallel()
	s, there := pipedStream(t)
	for range 5 {
		s.Wake()
	}
	_, err := s.Next(t.Context())
	wantWoken(t, err)
	s.Wake()
	wantWoken(t, s.Wait(t.Context()))
	write(t, there, oneRow(1, "1"))
	s.Wake()
	if key, wakes := nextKey(t, s); key != "1" || wakes != 1 {
		t.Errorf("row %s, after %d wakes", key, wakes)
	}
	soon, cancel := context.WithTimeout(t.Context(), 2*beforeReading)
	defer cancel()
	if err := s.Wait(soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nobody wakes it: %v", err)
	}
}

func TestAWakeInterruptsNextInTheMiddleOfAMessage(t *testing.T) {
	t.Parallel()
	row := oneRow(1, "1")
	for at := range len(row) {
		s, there := pipedStream(t)
		write(t, there, row[:at])
		timer := time.AfterFunc(time.Millisecond, s.Wake)
		var seen []Kind
		for {
			m, err := s.Next(t.Context())
			if errors.Is(err, ErrWoken) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			seen = append(seen, m.Kind)
		}
		timer.Stop()
		if len(seen) > 2 {
			t.Fatalf("%d of %d bytes gave %q", at, len(row), seen)
		}
		write(t, there, row[at:])
		for len(seen) < 3 {
			m, err := s.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			seen = append(seen, m.Kind)
		}
		if fmt.Sprint(seen) != fmt.Sprint([]Kind{KindBegin, KindChange, KindCommit}) {
			t.Fatalf("interrupted after %d of %d bytes: %q", at, len(row), seen)
		}
	}
}

func TestAWakeEndsAWaitInAnyOfItsParts(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]time.Duration{"before it reads": beforeReading / 2, "while it reads ahead": 3 * beforeReading} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, there := pipedStream(t)
			row := oneRow(1, "1")
			write(t, there, row[:len(row)/2])
			timer := time.AfterFunc(after, s.Wake)
			defer timer.Stop()
			began := time.Now()
			wantWoken(t, s.Wait(t.Context()))
			if took := time.Since(began); took < after || took > after+patience {
				t.Errorf("woken after %v, returned after %v", after, took)
			}
			write(t, there, row[len(row)/2:])
			if key, _ := nextKey(t, s); key != "1" {
				t.Errorf("row %q", key)
			}
		})
	}
}

// Rows come, wakes come from many goroutines, and the reader is now in Next and now in Wait. No row is lost, and after the
// last wake of each goroutine there is an ErrWoken.
func TestManyWakesAtOnceLoseNoMessageAndNoWake(t *testing.T) {
	t.Parallel()
	const rows, wakers, each = 2000, 4, 200
	s, there := pipedStream(t)
	done := make(chan struct{}, wakers)
	var running sync.WaitGroup
	for range wakers {
		running.Go(func() {
			for range each {
				<-time.After(50 * time.Microsecond)
				s.Wake()
			}
			done <- struct{}{}
			s.Wake()
		})
	}
	running.Go(func() {
		for i := range rows {
			write(t, there, oneRow(2*i+1, fmt.Sprint(i)))
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	read, ended, wakes := 0, 0, 0
	for read < rows || ended < wakers {
		m, err := s.Next(ctx)
		switch {
		case errors.Is(err, ErrWoken):
			for wakes++; len(done) > 0; ended++ {
				<-done
			}
			if wakes%10 == 0 { // and Wait is woken as well
				s.Wake()
				wantWoken(t, s.Wait(ctx))
				for ; len(done) > 0; ended++ {
					<-done
				}
			}
		case err != nil:
			t.Fatalf("%d of %d rows, %d of %d wakers: %v", read, rows, ended, wakers, err)
		case m.Kind == KindChange:
			if key := string(m.Change.Old[0].Bytes); key != fmt.Sprint(read) {
				t.Fatalf("row %s, want %d", key, read)
			}
			read++
		}
	}
	running.Wait()
	t.Logf("%d wakes were taken of %d", wakes, wakers*(each+1))
}

func TestAWakeAndTheEndOfAContextDoNotTakeEachOtherAway(t *testing.T) {
	t.Parallel()
	s, there := pipedStream(t)
	calls := map[string]func(context.Context) error{
		"Next": func(ctx context.Context) error { _, err := s.Next(ctx); return err },
		"Wait": s.Wait,
		"a read ahead": func(ctx context.Context) error {
			_, err := s.readAhead(ctx, s.wakeups, time.Time{})
			return err
		},
	}
	for name, call := range calls {
		for i := range 200 {
			ctx, cancel := context.WithCancel(t.Context())
			var both sync.WaitGroup
			both.Go(s.Wake)
			both.Go(cancel)
			if i%2 == 0 {
				both.Wait()
			}
			err := call(ctx)
			both.Wait()
			switch {
			case errors.Is(err, ErrWoken) && len(s.wakeups) != 0:
				t.Fatalf("%s: woken, and the wake is still there", name)
			case errors.Is(err, context.Canceled):
				_, err = s.Next(t.Context())
				wantWoken(t, err)
			case !errors.Is(err, ErrWoken):
				t.Fatalf("%s: %v", name, err)
			}
			cancel()
		}
	}
	write(t, there, oneRow(1, "1"))
	if key, _ := nextKey(t, s); key != "1" {
		t.Errorf("row %q", key)
	}
}

// The last rows come before the end of the stream, and a wake with both.
func TestAWakeAndTheEndOfTheStreamLoseNoMessage(t *testing.T) {
	t.Parallel()
	for range 100 {
		s, there := pipedStream(t)
		var both sync.WaitGroup
		both.Go(s.Wake)
		both.Go(func() {
			write(t, there, append(oneRow(1, "1"), framed('c', nil)...))
			_ = there.Close()
		})
		rows := 0
		var err error
		for err == nil || errors.Is(err, ErrWoken) {
			var m *Message
			if m, err = s.Next(t.Context()); err == nil && m.Kind == KindChange {
				rows++
			}
		}
		both.Wait()
		if rows != 1 || !errors.Is(err, errServerStopped) {
			t.Fatalf("%d rows, then %v", rows, err)
		}
		s.Wake()
		for _, again := range []error{s.Wait(t.Context()), s.During(t.Context(), nil)} {
			if !errors.Is(again, errServerStopped) {
				t.Errorf("after the end: %v", again)
			}
		}
	}
}

// A server stops while a reader is woken all the time, in Next and in Wait.
func TestAServerStopsAtOnceWhileTheReaderIsWoken(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		conn := prepareDatabase(t, db, map[string]string{"item": itemsTable})
		exec(t, conn, `insert into item values (1, 'n')`)
		for _, rest := range []bool{false, true} {
			s := openStream(t, db.URL, db.Name)
			ctx, cancel := context.WithCancel(t.Context())
			var waking sync.WaitGroup
			waking.Go(func() {
				for ctx.Err() == nil {
					s.Wake()
					<-time.After(time.Millisecond)
				}
			})
			rows, reading := 0, make(chan error, 1)
			go func() {
				for {
					m, err := s.Next(ctx)
					if err == nil && m.Kind == KindChange {
						rows++
					}
					if err == nil && m.Stopping {
						err = s.CheckStop(StalledAtMost)
					}
					if errors.Is(err, ErrWoken) && rest {
						err = s.Wait(ctx)
					}
					if errors.Is(err, ErrStopping) {
						err = s.CheckStop(0)
					}
					if err != nil && !errors.Is(err, ErrWoken) {
						reading <- errors.Join(err, s.Close(ctx))
						return
					}
				}
			}()
			exec(t, db.Connect(t), `delete from item`, `insert into item values (1, 'n')`)
			unpublished(t, db.Connect(t))
			if err := db.Server.Stop(ctx, pgserver.Fast); err != nil {
				t.Fatal(err)
			}
			err := <-reading
			cancel()
			waking.Wait()
			if GradeOf(err) != Retry || rows != 1 {
				t.Errorf("%d rows, then %v", rows, err)
			}
			restart(t, db)
			s = openStream(t, db.URL, db.Name)
			s.Confirm(wantTransaction(t, s, "delete public.item 1").tx.EndLSN)
			closeStream(t, s)
		}
	})
}
