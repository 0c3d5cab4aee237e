package replication

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"lapse/internal/pgserver"
	"lapse/internal/pgtest"
)

// A server that is told to stop in the middle of a transaction sends the rest of it first, and asks for nothing.
//
//lapse:long
func TestAServerStopsInTheMiddleOfATransaction(t *testing.T) {
	t.Parallel()
	readers := map[string]func(ctx context.Context, s *Stream, first chan<- struct{}) (int, error){
		"the reader reads":           readChanges,
		"the reader reads and waits": readAndWait,
	}
	pgtest.OnSolo(t, pgtest.Heavy(t, 14, 18), func(t *testing.T, db *pgtest.DB) {
		const most = 900_000 // more than is read in the two seconds that it takes to notice
		conn := prepareDatabase(t, db, map[string]string{"item": `create table item (id bigint primary key)`})
		exec(t, conn, fmt.Sprintf(`insert into item select generate_series(1, %d)`, most), `delete from item`)
		stopped := map[string]time.Duration{}
		for name, read := range readers {
			t.Run(name, func(t *testing.T) { stopped[name] = stopInTheMiddle(t, db, read, most) })
		}
		s := openStream(t, db.URL, db.Name)
		first := make(chan struct{})
		began := make(chan time.Time, 1)
		go func() {
			<-first
			began <- time.Now()
		}()
		rows, err := readChanges(t.Context(), s, first)
		all := time.Since(<-began)
		if err != nil || rows != most {
			t.Errorf("%d of %d rows in the end, %v", rows, most, err)
		}
		t.Logf("to read all took %v", all)
		for name, took := range stopped {
			if took > all {
				t.Errorf("%s: the server took %v to stop, to read all would have taken %v", name, took, all)
			}
		}
	})
}

func stopInTheMiddle(t *testing.T, db *pgtest.DB, read func(context.Context, *Stream, chan<- struct{}) (int, error), most int) time.Duration {
	t.Helper()
	s, err := Open(t.Context(), StreamConfig{ConnString: db.URL, Slot: db.Name})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
	defer cancel()
	first, rows, reading := make(chan struct{}), 0, make(chan error, 1)
	go func() {
		n, err := read(ctx, s, first)
		rows = n
		if closed := s.Close(ctx); closed != nil && !errors.Is(closed, errSlow) {
			err = errors.Join(err, closed)
		}
		reading <- err
	}()
	select {
	case <-first:
	case <-ctx.Done():
		t.Fatal("no row")
	}
	began := time.Now()
	if err := db.Server.Stop(ctx, pgserver.Fast); err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	err = <-reading
	t.Logf("stopped in %v, after %d of %d rows: %v", took, rows, most, err)
	if !errors.Is(err, ErrStopping) || rows >= most {
		t.Errorf("the reader was not told: %v", err)
	}
	restart(t, db)
	return took
}

// readChanges reads until the transaction has ended or the server stops. It closes first with the first row.
func readChanges(ctx context.Context, s *Stream, first chan<- struct{}) (rows int, err error) {
	for {
		m, err := s.Next(ctx)
		switch {
		case err != nil:
			return rows, err
		case m.Stopping && s.CheckStop(0) == nil:
			return rows, errors.New("stopping, and nothing to be done about it")
		case m.Stopping:
			return rows, ErrStopping
		case m.Kind == KindChange:
			if rows++; rows == 1 {
				close(first)
			}
			if rows%1000 == 0 { // half a million in a second at most: it is the time that counts, not the work
				<-time.After(2 * time.Millisecond)
			}
		case m.Kind == KindCommit && rows > 0:
			return rows, nil
		}
	}
}

// readAndWait reads as one does who is held up again and again, never for long.
func readAndWait(ctx context.Context, s *Stream, first chan<- struct{}) (rows int, err error) {
	for {
		m, err := s.Next(ctx)
		switch {
		case err != nil:
			return rows, err
		case m.Kind == KindCommit && rows > 0:
			return rows, nil
		case m.Kind == KindChange:
			if rows++; rows == 1 {
				close(first)
			}
			if rows%10_000 != 0 {
				continue
			}
			timer := time.AfterFunc(3*beforeReading/2, s.Wake)
			err := s.Wait(ctx)
			timer.Stop()
			if !errors.Is(err, ErrWoken) {
				return rows, err
			}
		}
	}
}
