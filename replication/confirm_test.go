package replication

import (
	"context"
	"testing"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

func TestOnlyTheEndOfATransactionTakesItOff(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		conn := prepareDatabase(t, db, map[string]string{"item": itemsTable})
		exec(t, conn, `insert into item select i, 'n' from generate_series(1, 3) i`)
		reopen := func(confirm schemas.LSN, s *Stream) *Stream {
			s.Confirm(confirm)
			closeStream(t, s)
			next := openStream(t, db.URL, db.Name)
			if next.StartedAt() < confirm {
				t.Fatalf("confirmed %s, and started at %s", confirm, next.StartedAt())
			}
			return next
		}
		exec(t, conn, `delete from item where id = 1`, `delete from item where id = 2`)
		s := openStream(t, db.URL, db.Name)
		first := wantTransaction(t, s, "delete public.item 1")
		s = reopen(first.tx.CommitLSN, s)
		again := wantTransaction(t, s, "delete public.item 1")
		if again.tx.Position(0) != first.tx.Position(0) || again.tx.EndLSN != first.tx.EndLSN {
			t.Errorf("sent again as %v, before as %v", again.tx, first.tx)
		}
		s = reopen(first.tx.EndLSN, s)
		wantTransaction(t, s, "delete public.item 2")
		s = reopen(0, s)
		wantTransaction(t, s, "delete public.item 2")
	})
}

func TestNothingIsConfirmedByReadingAlone(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		conn := prepareDatabase(t, db, map[string]string{"item": itemsTable})
		exec(t, conn, `insert into item select i, 'n' from generate_series(1, 2) i`, `delete from item where id = 1`)
		s := openStream(t, db.URL, db.Name)
		wantTransaction(t, s, "delete public.item 1")
		if err := s.flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		// The server has taken the status once it shows it.
		var flushed schemas.LSN
		eventually(t, "the server takes the status", func() bool {
			err := conn.QueryRow(t.Context(), `select flush_lsn::text from pg_stat_replication where pid = $1`, s.ServerPID()).
				Scan(&flushed)
			return err == nil && flushed != 0
		})
		slot, err := ReadSlot(t.Context(), conn, db.Name)
		if err != nil {
			t.Fatal(err)
		}
		if flushed != s.StartedAt() || slot.Confirmed != s.StartedAt() {
			t.Errorf("started at %s, told the server %s, the slot is at %s", s.StartedAt(), flushed, slot.Confirmed)
		}
	})
}

func TestAPositionThatTheServerHasNotSentIsNotTold(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	conn := prepareDatabase(t, db, map[string]string{"item": itemsTable})
	exec(t, conn, `insert into item values (1, 'n'), (2, 'n')`)
	s := openStream(t, db.URL, db.Name)
	s.Confirm(s.StartedAt() + 1<<40)
	exec(t, conn, `delete from item where id = 1`)
	wantTransaction(t, s, "delete public.item 1")
	closeStream(t, s)
	exec(t, conn, `delete from item where id = 2`)
	wantTransaction(t, openStream(t, db.URL, db.Name), "delete public.item 2")
}

func TestThePositionOfAKeepaliveMayBeConfirmedBetweenTransactions(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		conn := prepareDatabase(t, db, map[string]string{"item": itemsTable})
		exec(t, conn, `create table other (id int)`, `insert into item values (1, 'n')`)
		s := openStream(t, db.URL, db.Name)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		exec(t, conn, `insert into other select generate_series(1, 1000)`)
		var target schemas.LSN
		if err := conn.QueryRow(ctx, `select pg_current_wal_lsn()::text`).Scan(&target); err != nil {
			t.Fatal(err)
		}
		for s.Confirmed() < target {
			m, err := s.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if m.Kind == KindKeepalive && !m.Open {
				s.Confirm(m.WALEnd)
			}
		}
		closeStream(t, s)
		exec(t, conn, `delete from item`)
		next := openStream(t, db.URL, db.Name)
		if next.StartedAt() < target {
			t.Errorf("started at %s, below %s", next.StartedAt(), target)
		}
		wantTransaction(t, next, "delete public.item 1")
	})
}
