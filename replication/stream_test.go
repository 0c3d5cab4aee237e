package replication

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

const itemsTable = `create table item (id bigint primary key, note text)`

func TestADeleteArrivesWithItsTransaction(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		conn := prepareDatabase(t, db, map[string]string{"item": itemsTable})
		exec(t, conn, `insert into item select i, 'n' from generate_series(1, 3) i`)
		s := openStream(t, db.URL, db.Name)

		var xid uint32
		before := time.Now().Add(-time.Second)
		inTx(t, conn, func(tx pgx.Tx) error {
			if err := tx.QueryRow(t.Context(), `select pg_current_xact_id()::text::bigint & 4294967295`).Scan(&xid); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), `delete from item where id <= 2`)
			return err
		})
		got := wantTransaction(t, s, "delete public.item 1", "delete public.item 2")
		if got.tx.XID != xid {
			t.Errorf("xid %d, want %d", got.tx.XID, xid)
		}
		if got.tx.Timeline != 1 || got.tx.Origin != "" {
			t.Errorf("timeline %d, origin %q", got.tx.Timeline, got.tx.Origin)
		}
		if got.tx.CommitTime.Before(before) || got.tx.CommitTime.After(time.Now().Add(time.Second)) {
			t.Errorf("committed at %v", got.tx.CommitTime)
		}
		if got.tx.EndLSN <= got.tx.CommitLSN || got.tx.CommitLSN <= s.StartedAt() {
			t.Errorf("started at %s, commit %s, end %s", s.StartedAt(), got.tx.CommitLSN, got.tx.EndLSN)
		}
	})
}

func TestAStreamKnowsItsDatabase(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		conn := prepareDatabase(t, db, nil)
		s := openStream(t, db.URL, db.Name)
		got := s.Identity()
		var want Identity
		err := conn.QueryRow(t.Context(), `
			select c.system_identifier::text::numeric, d.oid, d.datname, 1,
			       current_setting('server_version_num')::int, current_setting('server_encoding')
			  from pg_control_system() c, pg_database d where d.datname = current_database()`).
			Scan(&want.SystemIdentifier, &want.DatabaseOID, &want.Database, &want.Timeline, &want.ServerVersion, &want.Encoding)
		if err != nil {
			t.Fatal(err)
		}
		want.ServerStart, want.Flushed = got.ServerStart, got.Flushed
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %+v\nwant %+v", got, want)
		}
		var same bool
		err = conn.QueryRow(t.Context(), `
			select pg_postmaster_start_time() = $1 and pg_current_wal_flush_lsn() >= $2::text::pg_lsn`,
			got.ServerStart, got.Flushed.String()).Scan(&same)
		if err != nil || !same || got.Flushed < s.StartedAt() {
			t.Errorf("started %s, flushed %s: %v", got.ServerStart, got.Flushed, err)
		}
	})
}

func TestTheTextOfAValueDoesNotDependOnTheServersSettings(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		conn := prepareDatabase(t, db, map[string]string{"v": `
			create table v (at timestamptz, day date, span interval, real double precision, raw bytea, class regclass,
				primary key (at, day, span, real, raw, class))`})
		db.Exec(t, fmt.Sprintf(`alter database %s set datestyle = 'SQL, DMY'; alter database %[1]s set intervalstyle = 'iso_8601';
			alter database %[1]s set extra_float_digits = -5; alter database %[1]s set timezone = 'Asia/Kathmandu';
			alter database %[1]s set bytea_output = 'escape'; alter database %[1]s set search_path = public`, db.Name))
		exec(t, conn, `insert into v values ('2026-11-21 10:00+00', '2026-02-28', '1 mon 2 days', 0.1::float8 + 0.2, '\x00ff', 'v')`)
		s := openStream(t, db.URL, db.Name)
		exec(t, conn, `delete from v`)

		var got []string
		for m := nextChange(t, s); got == nil; {
			for _, v := range m.Change.Old {
				got = append(got, string(v.Bytes))
			}
		}
		want := []string{"2026-11-21 10:00:00+00", "2026-02-28", "1 mon 2 days", "0.30000000000000004", `\x00ff`, "public.v"}
		if !slices.Equal(got, want) {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	})
}

// nextChange reads up to the next change.
func nextChange(t *testing.T, s *Stream) *Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		m, err := s.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if m.Kind == KindChange {
			return m
		}
	}
}

func TestBytesOfAnotherEncodingComeThrough(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		const raw = "caf\xe9 \xff\x80"
		other := anotherDatabase(t, db, "ascii", "template template0 encoding 'SQL_ASCII' locale 'C'")
		conn := prepareDatabase(t, other, map[string]string{"item": `create table item (id bytea, name text primary key)`})
		exec(t, conn, `set client_encoding = 'SQL_ASCII'`, `insert into item values ('', E'caf\xe9 \xff\x80')`)
		s, err := Open(t.Context(), StreamConfig{ConnString: other.URL, Slot: other.Name})
		if err != nil {
			t.Fatal(err)
		}
		defer closeStream(t, s)
		exec(t, conn, `delete from item`)
		m := nextChange(t, s)
		if got := string(m.Change.Old[1].Bytes); got != raw {
			t.Errorf("got %q, want %q", got, raw)
		}
		if got := s.Identity().Encoding; got != "SQL_ASCII" {
			t.Errorf("encoding %s", got)
		}
	})
}

// anotherDatabase makes a second database beside db. It and its slots go when the test ends.
func anotherDatabase(t *testing.T, db *pgtest.DB, suffix, options string) *pgtest.DB {
	t.Helper()
	other := *db
	other.Name = db.Name + "_" + suffix
	other.URL = db.Server.URL("postgres", other.Name)
	db.Exec(t, fmt.Sprintf("create database %s %s", other.Name, options))
	t.Cleanup(func() {
		onExit(t, db, fmt.Sprintf("drop database %s with (force)", other.Name))
	})
	return &other
}

// onExit runs a statement when the test's own context has ended.
func onExit(t *testing.T, db *pgtest.DB, sql string) {
	t.Helper()
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, db.URL)
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = conn.Close(ctx) }()
	if _, err := conn.Exec(ctx, sql); err != nil {
		t.Error(err)
	}
}

func TestWhatASavepointTookBackIsNotDelivered(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		conn := prepareDatabase(t, db, map[string]string{"item": itemsTable})
		exec(t, conn, `insert into item select i, 'n' from generate_series(1, 5) i`)
		s := openStream(t, db.URL, db.Name)
		exec(t, conn, `begin`, `delete from item where id = 1`,
			`savepoint a`, `delete from item where id = 2`, `rollback to a`,
			`savepoint b`, `delete from item where id = 3`, `release b`, `delete from item where id = 5`, `commit`)
		exec(t, conn, `begin`, `delete from item where id = 4`, `rollback`)
		exec(t, conn, `delete from item where id = 2`)
		wantTransaction(t, s, "delete public.item 1", "delete public.item 3", "delete public.item 5")
		wantTransaction(t, s, "delete public.item 2")
	})
}

func TestAPartitionIsNamedAndAMoveIsADelete(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		conn := prepareDatabase(t, db, map[string]string{"part": `
			create table part (id bigint, region text, primary key (id, region)) partition by list (region);
			create schema leaf;
			create table leaf.north partition of part for values in ('n');
			create table leaf.south partition of part for values in ('s')`})
		exec(t, conn, `insert into part values (1, 'n'), (2, 's'), (3, 'n')`)
		s := openStream(t, db.URL, db.Name)
		exec(t, conn, `delete from part where id = 2`, `delete from leaf.north where id = 1`, `update part set region = 's' where id = 3`)
		wantTransaction(t, s, "delete leaf.south 2")
		wantTransaction(t, s, "delete leaf.north 1")
		wantTransaction(t, s, "delete leaf.north 3")
		// A partition that is made later is published too.
		exec(t, conn, `create table leaf.west partition of part for values in ('w')`, `insert into part values (4, 'w')`, `delete from part where id = 4`)
		wantTransaction(t, s, "delete leaf.west 4")
		// Where the inserts are published a move can be told from a deletion.
		exec(t, conn, publishAll("part"), `update part set region = 'n' where id = 3`)
		wantTransaction(t, s, "delete leaf.south 3", "insert leaf.north 3")
	})
}

func TestATruncateIsOneChangePerPublishedTable(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		conn := prepareDatabase(t, db, nil)
		exec(t, conn, itemsTable, `create table child (id bigint primary key, item bigint references item)`,
			`create table hidden (id bigint primary key, item bigint references item)`)
		join(t, conn, "item")
		join(t, conn, "child")
		exec(t, conn, `insert into item values (1, 'n')`)
		s := openStream(t, db.URL, db.Name)
		exec(t, conn, `begin`, `delete from item`, `truncate item restart identity cascade`, `insert into item values (2, 'n')`,
			`delete from item`, `commit`)
		wantTransaction(t, s, "delete public.item 1", "truncate public.item ", "truncate public.child ", "delete public.item 2")
		exec(t, conn, `truncate child`)
		m := nextChange(t, s)
		if m.Change.Cascade || m.Change.RestartIdentity || m.Change.Old != nil || m.Change.New != nil {
			t.Errorf("a plain truncate: %+v", m.Change)
		}
		exec(t, conn, `truncate item restart identity cascade`)
		for m = nextChange(t, s); m.Change.Relation.Name == "child"; m = nextChange(t, s) {
			if m.Change.Cascade {
				break
			}
		}
		if !m.Change.Cascade || !m.Change.RestartIdentity {
			t.Errorf("truncate restart identity cascade: %+v", m.Change)
		}
	})
}

func TestACascadeAndAnOriginAreSeen(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		conn := prepareDatabase(t, db, nil)
		exec(t, conn, itemsTable, `create table child (id bigint primary key, item bigint references item on delete cascade)`)
		join(t, conn, "item")
		join(t, conn, "child")
		exec(t, conn, `insert into item values (1, 'n')`, `insert into child values (10, 1), (11, 1)`)
		s := openStream(t, db.URL, db.Name)
		origin := db.Name + "_origin"
		exec(t, conn, fmt.Sprintf(`select pg_replication_origin_create('%s')`, origin),
			fmt.Sprintf(`select pg_replication_origin_session_setup('%s')`, origin),
			`delete from item`, `select pg_replication_origin_session_reset()`)
		t.Cleanup(func() { onExit(t, db, fmt.Sprintf(`select pg_replication_origin_drop('%s')`, origin)) })
		got := wantTransaction(t, s, "delete public.item 1", "delete public.child 10", "delete public.child 11")
		if got.tx.Origin != origin {
			t.Errorf("origin %q, want %q", got.tx.Origin, origin)
		}
	})
}

func TestAnEmittedMessageOfAnySizeIsNotEvenSent(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		conn := prepareDatabase(t, db, map[string]string{"item": itemsTable})
		exec(t, conn, `insert into item values (1, 'n')`)
		s := openStream(t, db.URL, db.Name)
		exec(t, conn, `begin`, `select pg_logical_emit_message(true, 'lapse', repeat('x', 20000000))`, `delete from item`,
			`commit`, `select pg_logical_emit_message(false, 'lapse', 'now')`)
		wantTransaction(t, s, "delete public.item 1")
		if len(s.wire.buf) > readBuffer {
			t.Errorf("the buffer has grown to %d bytes", len(s.wire.buf))
		}
	})
}

func TestASlotServesOneStreamAtATime(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		prepareDatabase(t, db, nil)
		var opened int
		first := openStream(t, db.URL, db.Name)
		_, err := Open(t.Context(), StreamConfig{ConnString: db.URL, Slot: db.Name})
		if !errors.Is(err, ErrSlotActive) || GradeOf(err) != Retry {
			t.Fatalf("got %v", err)
		}
		// Close returns when the slot is free, so there is nothing to wait for.
		for s := first; !t.Failed(); s = openStream(t, db.URL, db.Name) {
			closeStream(t, s)
			if opened++; opened == 30 {
				break
			}
		}
	})
}

func TestACancelledContextInterruptsAndLosesNothing(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		conn := prepareDatabase(t, db, map[string]string{"item": itemsTable})
		exec(t, conn, `insert into item values (1, 'n')`)
		s := openStream(t, db.URL, db.Name)
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			timer := time.AfterFunc(50*time.Millisecond, cancel)
			began := time.Now()
			for {
				_, err := s.Next(ctx)
				if err == nil {
					continue
				}
				if !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				break
			}
			if took := time.Since(began); took > patience {
				t.Errorf("interrupted after %v", took)
			}
			timer.Stop()
			cancel()
		}
		exec(t, conn, `delete from item`)
		wantTransaction(t, s, "delete public.item 1")
	})
}

func TestALoginNeedsReplicationAndNothingElse(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		conn := prepareDatabase(t, db, map[string]string{"item": itemsTable})
		exec(t, conn, `revoke all on schema public from public`, `insert into item values (1, 'n')`)
		nobody := db.NewRole(t, "nobody")
		_, err := Open(t.Context(), StreamConfig{ConnString: db.As(nobody), Slot: db.Name})
		if schemas.StateOf(err) != schemas.SQLStateInsufficientPrivilege || GradeOf(err) != Stop || !strings.Contains(err.Error(), "alter role") {
			t.Errorf("without: %v", err)
		}
		auditor := db.NewRole(t, "auditor", "replication")
		s := openStream(t, db.As(auditor), db.Name)
		exec(t, conn, `delete from item`)
		wantTransaction(t, s, "delete public.item 1")
		closeStream(t, s)
	})
}

func TestAStreamThatWasClosedSaysSo(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t, pgtest.Newest(t))
	prepareDatabase(t, db, nil)
	s := openStream(t, db.URL, db.Name)
	closeStream(t, s)
	_, err := s.Next(t.Context())
	for _, err := range []error{err, s.Wait(t.Context()), s.flush(t.Context())} {
		if !errors.Is(err, errClosed) {
			t.Errorf("got %v", err)
		}
	}
}
