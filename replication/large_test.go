package replication

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"lapse/internal/pgtest"
	"lapse/schemas"
)

// maxGrowth is how much may be allocated, all in all, while rows pass that nobody wants. It bounds the heap without a look
// at it at the right moment.
const maxGrowth = 32 << 20

const eventsTable = `create table event (id int primary key, body bytea) partition by range (id);
	create table event_1 partition of event for values from (0) to (100)`

// passesFlat reads up to the end of the next transaction and wants it to be rows, in little memory.
func passesFlat(t *testing.T, s *Stream, want ...string) transaction {
	t.Helper()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	got := wantTransaction(t, s, want...)
	runtime.ReadMemStats(&after)
	grown := after.TotalAlloc - before.TotalAlloc
	t.Logf("%q: %d MB allocated, %d MB of heap", want, grown>>20, after.HeapSys>>20)
	if grown > maxGrowth {
		t.Errorf("%q: %d bytes allocated", want, grown)
	}
	if len(s.wire.buf) > 4*readBuffer {
		t.Errorf("the buffer has %d bytes", len(s.wire.buf))
	}
	return got
}

// Not parallel, like those below: what is measured is the memory of the process, and the server needs much of its own.
//
//lapse:long
func TestAnInsertThatPostgresCannotSendDoesNotStopAPartitionedTable(t *testing.T) {
	for _, major := range pgtest.Heavy(t, 14, 18) {
		t.Run(fmt.Sprintf("pg%d", major), func(t *testing.T) {
			db := pgtest.New(t, major)
			conn := prepareDatabase(t, db, map[string]string{"event": eventsTable})
			// Its hex form has more than 1 GB.
			exec(t, conn, `insert into event values (1, convert_to(repeat('x', 560000000), 'UTF8')), (2, '')`, `delete from event where id = 2`)
			s := openStream(t, db.URL, db.Name)
			passesFlat(t, s, "delete public.event_1 2")
			exec(t, conn, `update event set id = 3`, `delete from event where id = 3`)
			passesFlat(t, s, "delete public.event_1 3")
		})
	}
}

//lapse:long
func TestALargeRowThatNobodyWantsPassesInLittleMemory(t *testing.T) {
	for _, major := range pgtest.Heavy(t, 14, 18) {
		t.Run(fmt.Sprintf("pg%d", major), func(t *testing.T) {
			db := pgtest.New(t, major)
			conn := prepareDatabase(t, db, map[string]string{"event": eventsTable})
			exec(t, conn, publishAll("event"))
			exec(t, conn, `begin`, `insert into event values (1, convert_to(repeat('x', 150000000), 'UTF8')), (2, '')`,
				`update event set body = body || 'y'`, `delete from event`, `commit`)
			s := openStream(t, db.URL, db.Name)
			got := passesFlat(t, s, "insert public.event_1 ", "insert public.event_1 2", "update public.event_1 ", "update public.event_1 2",
				"delete public.event_1 1", "delete public.event_1 2")
			s.Confirm(got.tx.EndLSN)
			exec(t, conn, `insert into event values (3, '')`)
			wantTransaction(t, s, "insert public.event_1 3")
		})
	}
}

//lapse:long
func TestALargeRowDeletedUnderFullIdentityIsDeliveredInLittleMemory(t *testing.T) {
	for _, major := range pgtest.Heavy(t, 14, 18) {
		t.Run(fmt.Sprintf("pg%d", major), func(t *testing.T) {
			db := pgtest.New(t, major)
			conn := prepareDatabase(t, db, map[string]string{"item": itemsTable})
			exec(t, conn, `alter table item replica identity full`, `insert into item values (1, repeat('x', 300000000)), (2, 'n')`)
			s := openStream(t, db.URL, db.Name)
			exec(t, conn, `delete from item where id = 1`)
			passesFlat(t, s, "delete public.item ")
			exec(t, conn, `delete from item`)
			wantTransaction(t, s, "delete public.item 2")
		})
	}
}

// docs/limits.md says what is tried here.
//
//lapse:long
func TestARowThatPostgresCannotSendIsDeletedWithoutItsValuesOrNotPassed(t *testing.T) {
	db := pgtest.New(t, pgtest.Newest(t))
	conn := prepareDatabase(t, db, map[string]string{"item": `create table item (id int primary key, body bytea)`})
	exec(t, conn, `insert into item select i, convert_to(repeat('x', 560000000), 'UTF8') from generate_series(1, 2) i`,
		`alter table item replica identity full`, `alter table item replica identity default`, `delete from item where id = 1`)
	s := openStream(t, db.URL, db.Name)
	wantTransaction(t, s, "delete public.item 1")
	exec(t, conn, `alter table item replica identity full`, `delete from item`, `alter table item replica identity default`)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	_, err := s.Next(ctx)
	for ; err == nil; _, err = s.Next(ctx) {
	}
	if schemas.StateOf(err) != schemas.SQLStateInternalError || GradeOf(err) != Stop || !strings.Contains(err.Error(), "docs/limits.md") {
		t.Errorf("got %v", err)
	}
}

// A row of evidence that is longer than any can be must not stop its readers.
func TestARowOfEvidenceThatIsTooLongIsDeliveredWithoutValues(t *testing.T) {
	pgtest.Each(t, func(t *testing.T, db *pgtest.DB) {
		conn := prepareDatabase(t, db, map[string]string{"lapse.batch": `create schema lapse; create table lapse.batch (id int primary key, note text)`})
		exec(t, conn, publishAll("lapse.batch"))
		s := openStream(t, db.URL, db.Name)
		exec(t, conn, fmt.Sprintf(`insert into lapse.batch values (1, repeat('x', %d)), (2, repeat('x', %d)), (3, '')`, maxBuffered, maxBuffered-200),
			`update lapse.batch set id = 4, note = note || 'y' where id = 1`)
		m := nextChange(t, s)
		if m.Change.Op != OpInsert || m.Change.Old != nil {
			t.Errorf("the insert: %+v", m.Change)
		}
		wantValues(t, m.Change.New, Unsent, Unsent)
		if m = nextChange(t, s); m.Change.Ordinal != 1 || len(m.Change.New[1].Bytes) != maxBuffered-200 {
			t.Errorf("the next: ordinal %d", m.Change.Ordinal)
		}
		if m = nextChange(t, s); m.Change.Ordinal != 2 || string(m.Change.New[0].Bytes) != "3" {
			t.Errorf("the last: ordinal %d", m.Change.Ordinal)
		}
		m = nextChange(t, s)
		wantValues(t, m.Change.Old, Unsent, Unsent)
		wantValues(t, m.Change.New, Unsent, Unsent)
		if m.Change.Op != OpUpdate || !m.Change.OldIsKey {
			t.Errorf("the update: %+v", m.Change)
		}
	})
}

// The server gives up on a reader that is silent for longer than its timeout.
//
//lapse:long
func TestAServerWithAShortPatienceIsAnsweredWhileALargeRowPasses(t *testing.T) {
	db := pgtest.New(t, pgtest.Newest(t))
	conn := prepareDatabase(t, db, map[string]string{"item": itemsTable})
	exec(t, conn, `alter table item replica identity full`, `insert into item values (1, repeat('x', 300000000))`)
	exec(t, conn, fmt.Sprintf(`alter database %s set wal_sender_timeout = '3s'`, db.Name))
	s := openStream(t, db.URL, db.Name)
	exec(t, conn, `delete from item`)
	// Some calls that end at once, and waits that deliver nothing, in the middle of the row.
	for m := nextMessage(t, s); m.Kind != KindChange; m = nextMessage(t, s) {
	}
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*beforeReading)
		if err := s.Wait(ctx); ctx.Err() == nil {
			t.Fatal(err)
		}
		cancel()
	}
	if len(s.wire.buf) > 8*readBuffer {
		t.Errorf("the buffer has %d bytes", len(s.wire.buf))
	}
	for m := nextMessage(t, s); m.Kind != KindCommit; m = nextMessage(t, s) {
	}
	exec(t, conn, `insert into item values (2, 'n')`, `delete from item`)
	wantTransaction(t, s, "delete public.item 2")
}

// publishAll is SQL that has inserts and updates of a table published too.
func publishAll(table string) string {
	return fmt.Sprintf(`alter publication lapse_changes add table only %s`, table)
}

func TestClosingBeforeALargeRowTakesLittleMemory(t *testing.T) {
	t.Parallel()
	var chunks [][]byte
	for rest := append(framed('d', make([]byte, 4*largeMessage)), framed('C', nil)...); len(rest) > 0; {
		n := min(len(rest), 5*largeMessage/2)
		chunks, rest = append(chunks, rest[:n]), rest[n:]
	}
	s := &Stream{wire: pipedWire(chunks)}
	defer func() { _ = s.wire.Close() }()
	if err := s.drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(s.wire.buf) > readBuffer {
		t.Errorf("the buffer has %d bytes", len(s.wire.buf))
	}
}

func nextMessage(t *testing.T, s *Stream) *Message {
	t.Helper()
	m, err := s.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The server's timeouts are meant for statements and sessions of applications. One large transaction may take the stream an hour.
func TestNoTimeoutOfTheDatabaseEndsAStreamInALargeTransaction(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 18}, func(t *testing.T, db *pgtest.DB) {
		conn := prepareDatabase(t, db, map[string]string{"item": itemsTable})
		exec(t, conn, `insert into item select n, repeat('x', 100) from generate_series(1, 200000) n`)
		exec(t, conn, fmt.Sprintf(`do $$
			declare
				name text;
			begin
				for name in select s.name from pg_settings s where s.unit in ('ms', 's') and s.context in ('user', 'superuser')
					and s.name ~ '(statement|lock|session|transaction|deadlock)_timeout$|^client_connection_check_interval$' loop
					execute format('alter database %s set %%I = ''400ms''', name);
				end loop;
			end $$`, db.Name))
		s := openStream(t, db.URL, db.Name)
		exec(t, conn, `delete from item`)
		for m := nextMessage(t, s); m.Kind != KindChange; m = nextMessage(t, s) {
		}
		for range 4 { // the caller waits for its own consumers meanwhile
			ctx, cancel := context.WithTimeout(t.Context(), 2*beforeReading)
			if err := s.Wait(ctx); ctx.Err() == nil {
				t.Fatal(err)
			}
			cancel()
		}
		for m := nextMessage(t, s); m.Kind != KindCommit; m = nextMessage(t, s) {
		}
	})
}
