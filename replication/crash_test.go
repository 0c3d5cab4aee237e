package replication

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgserver"
	"lapse/internal/pgtest"
)

// The server is killed again and again, while rows are deleted and read and positions are confirmed. When it is over,
// each row that is gone from the table was seen at exactly one position.
//
//lapse:long
func TestNothingIsMissingAfterTheServerWasKilled(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Majors(t), func(t *testing.T, db *pgtest.DB) {
		const rows, kills = 30000, 3
		conn := prepareDatabase(t, db, map[string]string{"item": itemsTable})
		exec(t, conn, fmt.Sprintf(`insert into item select i, 'n' from generate_series(1, %d) i`, rows))

		var at atomic.Int64 // rows deleted, roughly
		seen := map[Position]string{}
		var sentAgain int
		for round := range kills {
			goal := int64((round + 1) * rows / (kills + 1))
			deleting := make(chan error, 1)
			go func() { deleting <- deleteInBatches(t.Context(), db.URL, &at) }()
			reading := make(chan error, 1)
			s := openStream(t, db.URL, db.Name)
			go func() { reading <- readInto(t.Context(), s, seen, &sentAgain) }()

			eventually(t, "rows are deleted", func() bool { return at.Load() >= goal })
			if err := db.Server.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := <-deleting; GradeOf(err) != Retry {
				t.Errorf("the deleter saw %v", err)
			}
			if err := <-reading; GradeOf(err) != Retry {
				t.Errorf("the reader saw %v", err)
			}
			restart(t, db)
		}
		exec(t, db.Connect(t), `delete from item`)
		inspect(t, db, seen, rows, &sentAgain)
	})
}

func deleteInBatches(ctx context.Context, url string, at *atomic.Int64) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	var from int64
	if err := conn.QueryRow(ctx, `select coalesce(min(id), 0) from item`).Scan(&from); err != nil {
		return err
	}
	for ; ; from += 10 {
		tag, err := conn.Exec(ctx, `delete from item where id between $1 and $1 + 9`, from)
		if err != nil {
			return err
		}
		at.Add(tag.RowsAffected())
	}
}

// readInto reads until the stream fails, and confirms every tenth transaction.
func readInto(ctx context.Context, s *Stream, seen map[Position]string, sentAgain *int) error {
	var transactions int
	for {
		m, err := s.Next(ctx)
		if err != nil {
			return err
		}
		switch m.Kind {
		case KindChange:
			key := string(m.Change.Old[0].Bytes)
			position := m.Tx.Position(m.Change.Ordinal)
			if before, again := seen[position]; again {
				*sentAgain++
				if before != key {
					return fmt.Errorf("position %s was row %s and is row %s", position, before, key)
				}
			}
			seen[position] = key
		case KindCommit:
			if transactions++; transactions%10 == 0 {
				s.Confirm(m.Tx.EndLSN)
				if err := s.flush(ctx); err != nil {
					return err
				}
			}
		case KindBegin, KindKeepalive:
		}
	}
}

// inspect reads what is left and compares.
func inspect(t *testing.T, db *pgtest.DB, seen map[Position]string, rows int, sentAgain *int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s := openStream(t, db.URL, db.Name)
	conn := db.Connect(t)
	exec(t, conn, `insert into item values (-7, 'the last one')`, `delete from item`)
	for ended := false; !ended; {
		m, err := s.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if m.Kind != KindChange {
			continue
		}
		key := string(m.Change.Old[0].Bytes)
		ended = key == "-7"
		position := m.Tx.Position(m.Change.Ordinal)
		if _, again := seen[position]; again {
			*sentAgain++
		}
		seen[position] = key
	}
	times := map[string]int{}
	for _, key := range seen {
		times[key]++
	}
	var missing, twice int
	for i := 1; i <= rows; i++ {
		switch n := times[strconv.Itoa(i)]; {
		case n == 0:
			missing++
		case n > 1:
			twice++
		}
	}
	if missing != 0 || twice != 0 {
		t.Errorf("%d rows missing, %d at more than one position", missing, twice)
	}
	t.Logf("%d rows seen, %d sent more than once", len(times)-1, *sentAgain)
}

func TestATransactionKeepsTheTimelineItWasCommittedOn(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Majors(t), func(t *testing.T, db *pgtest.DB) {
		conn := prepareDatabase(t, db, map[string]string{"item": itemsTable})
		exec(t, conn, `insert into item values (1, 'n'), (2, 'n')`, `delete from item where id = 1`)
		if err := conn.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := db.Server.Stop(t.Context(), pgserver.Fast); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(db.Server.DataDir(), "standby.signal"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		restart(t, db)
		_, err := Open(t.Context(), StreamConfig{ConnString: db.URL, Slot: db.Name})
		if !errors.Is(err, errStandby) || GradeOf(err) != Stop {
			t.Errorf("a standby is not refused: %v", err)
		}
		for _, wanted := range []string{"read-write", "primary"} { // a promotion may be under way
			_, err := Open(t.Context(), StreamConfig{ConnString: db.URL + "&target_session_attrs=" + wanted, Slot: db.Name})
			if err == nil || GradeOf(err) != Retry {
				t.Errorf("%s: a standby is not passed over until there is a primary: %v", wanted, err)
			}
		}
		conn = db.Connect(t)
		exec(t, conn, `select pg_promote()`, `delete from item where id = 2`)

		s := openStream(t, db.URL, db.Name)
		if got := s.Identity().Timeline; got != 2 {
			t.Fatalf("the server is on timeline %d", got)
		}
		if got := wantTransaction(t, s, "delete public.item 1"); got.tx.Timeline != 1 {
			t.Errorf("deleted before the promotion, on timeline %d", got.tx.Timeline)
		}
		if got := wantTransaction(t, s, "delete public.item 2"); got.tx.Timeline != 2 {
			t.Errorf("deleted after the promotion, on timeline %d", got.tx.Timeline)
		}
	})
}
