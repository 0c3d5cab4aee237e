package replication

import (
	"errors"
	"strings"
	"testing"
	"time"

	"lapse/internal/pgtest"
)

func TestASlotIsMadeAfterThePublicationsAndOnlyOnce(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		ctx, conn := t.Context(), db.Connect(t)
		_, err := CreateSlot(ctx, conn, db.Name)
		if !errors.Is(err, errPublicationMissing) || GradeOf(err) != Stop {
			t.Fatalf("without publications: %v", err)
		}
		if err := EnsurePublications(ctx, conn); err != nil {
			t.Fatal(err)
		}
		s, err := ReadSlot(ctx, conn, db.Name)
		if err != nil || s.Exists {
			t.Fatalf("before: %+v, %v", s, err)
		}
		made, first, err := EnsureSlot(ctx, conn, db.Name)
		if err != nil || !first || !made.Exists || made.Plugin != outputPlugin || made.Database != db.Name || made.Active {
			t.Fatalf("made: %+v, %v, %v", made, first, err)
		}
		again, second, err := EnsureSlot(ctx, conn, db.Name)
		if err != nil || second || again.Confirmed != made.Confirmed {
			t.Fatalf("again: %+v, %v, %v", again, second, err)
		}
		if made.Confirmed == 0 || made.Restart == 0 || made.Restart > made.Confirmed || made.Current < made.Confirmed {
			t.Errorf("positions: %+v", made)
		}
		if made.WALStatus != "reserved" || made.SafeWALSize != nil || made.Failover || made.TwoPhase || made.Temporary {
			t.Errorf("state: %+v", made)
		}
		for range 2 {
			if err := DropSlot(ctx, conn, db.Name); err != nil {
				t.Fatal(err)
			}
		}
		_, err = Open(ctx, StreamConfig{ConnString: db.URL, Slot: db.Name})
		if !errors.Is(err, errSlotMissing) || GradeOf(err) != Stop {
			t.Errorf("a slot that is gone: %v", err)
		}
	})
}

func TestTheConsistentPointIsWhereTheStreamStarts(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		ctx, conn := t.Context(), db.Connect(t)
		if err := EnsurePublications(ctx, conn); err != nil {
			t.Fatal(err)
		}
		exec(t, conn, itemsTable, `insert into item values (1, 'n'), (2, 'n')`)
		join(t, conn, "item")
		exec(t, conn, `delete from item where id = 1`)
		point, err := CreateSlot(ctx, conn, db.Name)
		if err != nil {
			t.Fatal(err)
		}
		exec(t, conn, `delete from item where id = 2`)
		s := openStream(t, db.URL, db.Name)
		if s.StartedAt() != point {
			t.Errorf("started at %s, want %s", s.StartedAt(), point)
		}
		wantTransaction(t, s, "delete public.item 2")
	})
}

func TestASlotInUseIsSeenAndNotDropped(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		conn := prepareDatabase(t, db, nil)
		s := openStream(t, db.URL, db.Name)
		state, err := ReadSlot(t.Context(), conn, db.Name)
		if err != nil || !state.Active || uint32(state.ActivePID) != s.ServerPID() {
			t.Errorf("server process %d: %+v, %v", s.ServerPID(), state, err)
		}
		if err := DropSlot(t.Context(), conn, db.Name); !errors.Is(err, ErrSlotActive) {
			t.Errorf("drop: %v", err)
		}
	})
}

func TestAnotherProgramsSlotIsRefused(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		conn := prepareDatabase(t, db, nil)
		other := anotherDatabase(t, db, "other", "")
		name := db.Name + "_test"
		exec(t, conn, `select pg_create_logical_replication_slot('`+name+`', 'test_decoding')`)
		for what, config := range map[string]StreamConfig{
			"another plugin":   {ConnString: db.URL, Slot: name},
			"another database": {ConnString: other.URL, Slot: db.Name, Publications: []string{"p"}},
		} {
			if what == "another database" {
				exec(t, other.Connect(t), `create publication p`)
			}
			_, err := Open(t.Context(), config)
			if !errors.Is(err, errSlotForeign) || GradeOf(err) != Stop {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, _, err := EnsureSlot(t.Context(), conn, name); !errors.Is(err, errSlotForeign) {
			t.Errorf("ensure: %v", err)
		}
	})
}

func TestASlotThatTheServerGaveUpIsLost(t *testing.T) {
	t.Parallel()
	pgtest.OnSolo(t, pgtest.Majors(t), func(t *testing.T, db *pgtest.DB) {
		conn := prepareDatabase(t, db, map[string]string{"item": itemsTable})
		exec(t, conn, `create table other (note text)`, `insert into item values (1, 'n')`, `delete from item`)
		state, err := ReadSlot(t.Context(), conn, db.Name)
		if err != nil || state.SafeWALSize == nil || *state.SafeWALSize <= 0 {
			t.Fatalf("before: %+v, %v", state, err)
		}
		eventually(t, "the slot is lost", func() bool {
			exec(t, conn, `insert into other select repeat('x', 1000) from generate_series(1, 10000)`,
				`select pg_switch_wal()`, `checkpoint`)
			state, err = ReadSlot(t.Context(), conn, db.Name)
			return err != nil || state.WALStatus == walLost
		})
		if err != nil || state.SafeWALSize != nil && *state.SafeWALSize > 0 {
			t.Errorf("after: %+v, %v", state, err)
		}
		_, err = Open(t.Context(), StreamConfig{ConnString: db.URL, Slot: db.Name})
		if !errors.Is(err, ErrSlotLost) || GradeOf(err) != Stop {
			t.Errorf("open: %v", err)
		}
		if _, _, err := EnsureSlot(t.Context(), conn, db.Name); !errors.Is(err, ErrSlotLost) {
			t.Errorf("ensure: %v", err)
		}
	}, pgtest.Settings(map[string]string{"max_slot_wal_keep_size": "16MB", "min_wal_size": "32MB", "max_wal_size": "48MB"}))
}

func TestAFailoverSlotNeedsPostgreSQL17(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		conn := prepareDatabase(t, db, nil)
		if err := DropSlot(t.Context(), conn, db.Name); err != nil {
			t.Fatal(err)
		}
		s, _, err := EnsureSlot(t.Context(), conn, db.Name, WithFailover())
		if db.Major < 17 {
			if err == nil || !strings.Contains(err.Error(), "17") {
				t.Errorf("got %+v, %v", s, err)
			}
			return
		}
		if err != nil || !s.Failover {
			t.Errorf("got %+v, %v", s, err)
		}
	})
}

func TestAServerWithoutLogicalLogSaysHowToGetOne(t *testing.T) {
	t.Parallel()
	db := pgtest.Solo(t, pgtest.Newest(t), pgtest.Settings(map[string]string{"wal_level": "replica"}))
	conn := db.Connect(t)
	if err := EnsurePublications(t.Context(), conn); err != nil {
		t.Fatal(err)
	}
	_, errCreate := CreateSlot(t.Context(), conn, db.Name)
	_, errOpen := Open(t.Context(), StreamConfig{ConnString: db.URL, Slot: db.Name})
	for _, err := range []error{errCreate, errOpen} {
		if !errors.Is(err, errNotLogical) || !strings.Contains(err.Error(), "alter system set wal_level") || GradeOf(err) != Stop {
			t.Errorf("got %v", err)
		}
	}
}

// A slot that is older than a publication: up to PostgreSQL 17 the first change ends the stream, 18 only warns, and
// would leave the change out.
func TestAPublicationYoungerThanTheSlotStopsTheStream(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		conn := db.Connect(t)
		exec(t, conn, itemsTable, `insert into item values (1, 'n'), (2, 'n')`)
		if _, err := CreateSlot(t.Context(), conn, db.Name, withoutPublications); err != nil {
			t.Fatal(err)
		}
		exec(t, conn, `delete from item where id = 1`)
		if err := EnsurePublications(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
		join(t, conn, "item")
		exec(t, conn, `delete from item where id = 2`)
		s := openStream(t, db.URL, db.Name)
		began := time.Now()
		_, err := readTransaction(t.Context(), s)
		t.Logf("after %v: %v", time.Since(began), err)
		if !errors.Is(err, errPublicationMissing) || GradeOf(err) != Stop {
			t.Errorf("got %v", err)
		}
	})
}

// withoutPublications makes a slot that is older than the publications.
func withoutPublications(o *slotOptions) { o.publications = nil }
