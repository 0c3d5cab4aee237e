package pgserver_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgserver"
)

// quiet keeps servers from writing WAL of their own accord, so that copies of one have the same future.
var quiet = map[string]string{"autovacuum": "off", "checkpoint_timeout": "1h"}

// on runs a test on those of the major versions that are here and asked for.
func on(t *testing.T, majors []int, settings map[string]string, test func(*testing.T, *pgserver.Server)) {
	t.Helper()
	for _, install := range installed(t) {
		if slices.Contains(majors, install.Major) {
			t.Run(fmt.Sprintf("pg%d", install.Major), func(t *testing.T) {
				test(t, start(t, pgserver.Options{Install: install, Settings: settings}))
			})
		}
	}
}

func snapshot(t *testing.T, server *pgserver.Server, how pgserver.How) *pgserver.Copy {
	t.Helper()
	copied, err := server.Snapshot(t.Context(), how)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := copied.Close(); err != nil {
			t.Error(err)
		}
	})
	return copied
}

func restore(t *testing.T, server *pgserver.Server, from *pgserver.Copy, changes ...pgserver.Change) {
	t.Helper()
	if err := server.Restore(t.Context(), from, changes...); err != nil {
		t.Fatal(err)
	}
}

func clone(t *testing.T, from *pgserver.Copy, changes ...pgserver.Change) *pgserver.Server {
	t.Helper()
	server, err := from.Clone(t.Context(), changes...)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, server)
	return server
}

func closeAtEnd(t *testing.T, server *pgserver.Server) {
	t.Helper()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
}

// identity is what copies of a cluster have in common until one leaves the timeline.
func identity(t *testing.T, server *pgserver.Server) string {
	t.Helper()
	id, err := server.SystemIdentifier(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("system %d, timeline %d", id, timeline(t, server))
}

func timeline(t *testing.T, server *pgserver.Server) int {
	t.Helper()
	timeline, err := server.Timeline(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return timeline
}

func flushed(t *testing.T, server *pgserver.Server) string {
	t.Helper()
	lsn, err := server.FlushLSN(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return lsn
}

const (
	tableOfIDs = `create table ids (id int primary key)`
	idsOf      = `select coalesce(string_agg(id::text, ',' order by id), '') from ids`
	makeSlot   = `select pg_create_logical_replication_slot('kept', 'test_decoding')`
	slotsOf    = `select coalesce(string_agg(slot_name, ','), '') from pg_replication_slots`
	// commitOf is the xid and the position of the last commit that the slot has.
	commitOf = `
		select coalesce((select xid || ' ' || lsn from pg_logical_slot_peek_changes('kept', null, null)
		                  where data like 'COMMIT%' order by lsn desc limit 1), '')`
)

func TestARestoredSnapshotForgetsWhatCameAfterItAndLooksTheSame(t *testing.T) {
	t.Parallel()
	on(t, []int{14, 18}, quiet, func(t *testing.T, server *pgserver.Server) {
		exec1(t, server, tableOfIDs)
		exec1(t, server, makeSlot)
		exec1(t, server, `insert into ids values (1)`)
		before, port := identity(t, server), server.Port()
		copies := map[string]*pgserver.Copy{
			"backup": snapshot(t, server, pgserver.Backup), "frozen": snapshot(t, server, pgserver.Frozen),
		}
		if err := server.Stop(t.Context(), pgserver.Fast); err != nil {
			t.Fatal(err)
		}
		copies["stopped"] = snapshot(t, server, pgserver.Backup)
		if err := server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, from := range copies {
			exec1(t, server, `insert into ids values (2)`)
			restore(t, server, from)
			if got := query1(t, server, idsOf); got != "1" {
				t.Errorf("%s: rows %q, want those of the moment of the copy", name, got)
			}
			if after := identity(t, server); after != before || server.Port() != port {
				t.Errorf("%s: %s on port %d became %s on %d", name, before, port, after, server.Port())
			}
			if got := query1(t, server, slotsOf); got != "kept" {
				t.Errorf("%s: slots %q", name, got)
			}
			if got := query1(t, server, commitOf); got == "" {
				t.Errorf("%s: the slot has lost what was not read", name)
			}
		}
	})
}

func TestABaseBackupWithoutRecoverySignalKeepsItsTimelineAndHasNoSlots(t *testing.T) {
	t.Parallel()
	on(t, []int{14, 18}, quiet, func(t *testing.T, server *pgserver.Server) {
		exec1(t, server, tableOfIDs)
		exec1(t, server, makeSlot)
		before := identity(t, server)
		from := snapshot(t, server, pgserver.Backup)
		for _, changes := range [][]pgserver.Change{
			{pgserver.WithoutSlots()},
			{pgserver.WithoutSlots(), pgserver.WithoutBackupLabel()},
		} {
			restore(t, server, from, changes...)
			if after := identity(t, server); after != before {
				t.Errorf("%s became %s", before, after)
			}
			if got := query1(t, server, slotsOf); got != "" {
				t.Errorf("slots %q, want none", got)
			}
		}
	})
}

func TestTwoCopiesGiveTheSamePositionAndTheSameXidToDifferentTransactions(t *testing.T) {
	t.Parallel()
	on(t, []int{14, 18}, quiet, func(t *testing.T, server *pgserver.Server) {
		exec1(t, server, tableOfIDs)
		exec1(t, server, makeSlot)
		if err := server.Stop(t.Context(), pgserver.Fast); err != nil {
			t.Fatal(err)
		}
		from := snapshot(t, server, pgserver.Backup)
		if err := server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		other := clone(t, from)
		if other.Port() == server.Port() || other.DataDir() == server.DataDir() {
			t.Fatal("the clone has not a place of its own")
		}
		if a, b := identity(t, server), identity(t, other); a != b {
			t.Errorf("the clone of %s is %s", a, b)
		}
		exec1(t, server, `insert into ids values (1)`)
		exec1(t, other, `insert into ids values (2)`)
		a, b := query1(t, server, commitOf), query1(t, other, commitOf)
		if a != b || a == "" {
			t.Errorf("xid and commit position are %s here and %s there", a, b)
		}
		if a, b := query1(t, server, idsOf), query1(t, other, idsOf); a != "1" || b != "2" {
			t.Errorf("rows %s here and %s there", a, b)
		}
	})
}

func TestAFrozenServerAnswersNobodyAndGoesOnWithItsConnections(t *testing.T) {
	t.Parallel()
	server := start(t, pgserver.Options{Install: newest(t)})
	conn := connect(t, server)
	if err := server.Freeze(); err != nil {
		t.Fatal(err)
	}
	if !server.Frozen() {
		t.Error("the server does not say that it is frozen")
	}
	soon, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if other, err := pgx.Connect(soon, server.URL("postgres", "postgres")); err == nil {
		_ = other.Close(t.Context())
		t.Error("a frozen server answers")
	}
	if err := server.Thaw(); err != nil {
		t.Fatal(err)
	}
	if err := conn.Ping(t.Context()); err != nil {
		t.Errorf("the connection of before: %v", err)
	}
	if err := server.Freeze(); err != nil {
		t.Fatal(err)
	}
	if err := server.Kill(); err != nil {
		t.Errorf("kill a frozen server: %v", err)
	}
}
