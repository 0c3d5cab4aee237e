package replication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

func TestThePublicationsAreMadeOnceAndNeverChanged(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		ctx, conn := t.Context(), db.Connect(t)
		if err := checkPublications(ctx, conn); !errors.Is(err, errPublicationMissing) {
			t.Errorf("before: %v", err)
		}
		var group sync.WaitGroup
		for range 3 {
			mine := db.Connect(t)
			group.Go(func() {
				if err := EnsurePublications(ctx, mine); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if err := checkPublications(ctx, conn); err != nil {
			t.Fatal(err)
		}
		exec(t, conn, itemsTable)
		join(t, conn, "item")
		before := publicationOIDs(t, conn)
		if err := EnsurePublications(ctx, conn); err != nil {
			t.Fatal(err)
		}
		if after := publicationOIDs(t, conn); !slices.Equal(before, after) {
			t.Errorf("the publications were %v and are %v", before, after)
		}
		for change, back := range map[string]string{
			`alter publication lapse_deletes set (publish = 'delete')`: `alter publication lapse_deletes set (publish = 'delete, truncate')`,
			`alter publication lapse_changes set (publish_via_partition_root = true)`: `alter publication lapse_changes
				set (publish_via_partition_root = false)`,
			`alter publication lapse_ledger set (publish = 'insert, delete')`: `alter publication lapse_ledger set (publish = 'insert')`,
		} {
			exec(t, conn, change)
			err := EnsurePublications(ctx, conn)
			var wrong *PublicationError
			if !errors.Is(err, errPublicationDiffers) || !errors.As(err, &wrong) || GradeOf(err) != Stop {
				t.Fatalf("%s: %v", change, err)
			}
			// The fix is what it says.
			exec(t, conn, strings.TrimPrefix(wrong.Fix, "run: "))
			if err := checkPublications(ctx, conn); err != nil {
				t.Errorf("after %s: %v", wrong.Fix, err)
				exec(t, conn, back)
			}
		}
	})
}

func publicationOIDs(t *testing.T, conn *pgx.Conn) []uint32 {
	t.Helper()
	rows, err := conn.Query(t.Context(), `select oid from pg_publication order by pubname`)
	if err != nil {
		t.Fatal(err)
	}
	oids, err := pgx.CollectRows(rows, pgx.RowTo[uint32])
	if err != nil {
		t.Fatal(err)
	}
	return oids
}

func TestAPublicationWithMoreThanOursIsRefused(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		conn := db.Connect(t)
		exec(t, conn, `create publication lapse_changes for all tables`)
		if err := EnsurePublications(t.Context(), conn); !errors.Is(err, errPublicationDiffers) {
			t.Errorf("for all tables: %v", err)
		}
		exec(t, conn, `drop publication lapse_changes`)
		if err := EnsurePublications(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
		if db.Major < 15 {
			return
		}
		exec(t, conn, `create schema "A b"`, `alter publication lapse_deletes add tables in schema "A b"`)
		err := checkPublications(t.Context(), conn)
		var wrong *PublicationError
		if !errors.Is(err, errPublicationDiffers) || !errors.As(err, &wrong) {
			t.Fatalf("a whole schema: %v", err)
		}
		exec(t, conn, strings.TrimPrefix(wrong.Fix, "run: "))
		if err := checkPublications(t.Context(), conn); err != nil {
			t.Error(err)
		}
	})
}

func TestATableJoinsThePublicationOfDeletesAndLeaves(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		conn := prepareDatabase(t, db, map[string]string{
			"app.\"Odd \"\"name\"": `create schema app; create table app."Odd ""name" (id int primary key)`,
		})
		exec(t, conn, `create table part (id bigint primary key) partition by range (id);
			create table part_1 partition of part for values from (0) to (10)`,
			`create table evidence (id bigint, note text)`)
		join(t, conn, "part")
		inTx(t, conn, func(tx pgx.Tx) error { return JoinLedger(t.Context(), tx, oidOf(t, tx, "evidence")) })
		for range 2 {
			wantMembers(t, conn, `lapse_deletes app.Odd "name false`, `lapse_deletes public.part true`, `lapse_ledger public.evidence false`)
			join(t, conn, `app."Odd ""name"`)
			join(t, conn, "part")
		}
		// A table that an earlier version published with its inserts is moved.
		exec(t, conn, `alter publication lapse_changes add table only part`, `alter publication lapse_deletes drop table only part`)
		join(t, conn, "part")
		wantMembers(t, conn, `lapse_deletes app.Odd "name false`, `lapse_deletes public.part true`, `lapse_ledger public.evidence false`)
		for range 2 {
			inTx(t, conn, func(tx pgx.Tx) error {
				return errors.Join(Leave(t.Context(), tx, oidOf(t, tx, "part")), Leave(t.Context(), tx, oidOf(t, tx, `app."Odd ""name"`)))
			})
		}
		wantMembers(t, conn, `lapse_ledger public.evidence false`)
	})
}

func wantMembers(t *testing.T, conn *pgx.Conn, want ...string) {
	t.Helper()
	members, err := Members(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range members {
		if m.OID == 0 {
			t.Error("no oid")
		}
		got = append(got, fmt.Sprintf("%s %s.%s %v", m.Publication, m.Schema, m.Name, m.Partitioned))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A writer is at work while a table joins: without the lock its first delete would be missed and its second published.
func TestATransactionIsPublishedWholeOrNotAtAllWhenATableJoins(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		writer := prepareDatabase(t, db, nil)
		exec(t, writer, itemsTable, `insert into item values (1, 'n'), (2, 'n'), (3, 'n')`)
		s := openStream(t, db.URL, db.Name)
		exec(t, writer, `begin`, `delete from item where id = 1`)

		joiner := db.Connect(t)
		impatient := pgx.BeginFunc(t.Context(), joiner, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `set local lock_timeout = '50ms'`); err != nil {
				return err
			}
			return Join(t.Context(), tx, oidOf(t, tx, "item"))
		})
		if schemas.StateOf(impatient) != schemas.SQLStateLockNotAvailable || GradeOf(impatient) != Retry {
			t.Errorf("with a lock timeout: %v", impatient)
		}
		joined := make(chan error, 1)
		go func() {
			joined <- pgx.BeginFunc(context.WithoutCancel(t.Context()), joiner, func(tx pgx.Tx) error {
				return Join(context.WithoutCancel(t.Context()), tx, oidOf(t, tx, "item"))
			})
		}()
		eventually(t, "the join waits for the writer", func() bool {
			var waits bool
			err := writer.QueryRow(t.Context(), `select exists (select from pg_locks where relation = 'item'::regclass and not granted)`).
				Scan(&waits)
			return err == nil && waits
		})
		exec(t, writer, `delete from item where id = 2`, `commit`)
		if err := <-joined; err != nil {
			t.Fatal(err)
		}
		exec(t, writer, `delete from item where id = 3`)
		wantTransaction(t, s, "delete public.item 3")
	})
}

func TestTheOwnerOfATableCanPublishItWithoutBeingSuperuser(t *testing.T) {
	t.Parallel()
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		role := db.NewRole(t, "owner")
		db.Exec(t, fmt.Sprintf(`grant create on database %s to %s; grant all on schema public to %[2]s`, db.Name, role))
		conn := db.ConnectAs(t, role)
		if err := EnsurePublications(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
		exec(t, conn, itemsTable)
		join(t, conn, "item")
		if _, err := CreateSlot(t.Context(), conn, db.Name); GradeOf(err) != Stop || schemas.StateOf(err) != schemas.SQLStateInsufficientPrivilege {
			t.Errorf("a slot, without REPLICATION: %v", err)
		}
	})
}

// checkPublications returns an error unless all are there and as they must be. It changes nothing.
func checkPublications(ctx context.Context, q Querier) error {
	if err := requirePublications(ctx, q, Publications()); err != nil {
		return err
	}
	for _, name := range []Publication{Deletes, Changes, Ledger} {
		if _, err := checkPublication(ctx, q, name); err != nil {
			return err
		}
	}
	return nil
}
