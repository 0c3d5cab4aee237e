package replication

import (
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"lapse/internal/fixture"
	"lapse/internal/pgtest"
)

// Not -update, which writes what must come out the same each time: positions and transaction ids differ.
var record = flag.Bool("record", false, "write the recordings of what servers send")

// recordedMajors are those with a recording in testdata.
var recordedMajors = []int{14, 18}

func recording(major int) string {
	return filepath.Join("testdata", fmt.Sprintf("stream-%d.txt", major))
}

// recorded is what a server of this major sent for the transactions of spoken: a message per line, in hexadecimal.
func recorded(t testing.TB, major int) (messages []encoder) {
	t.Helper()
	text, err := os.ReadFile(recording(major))
	if err != nil {
		t.Fatalf("%v: run TestTheDecoderAgreesWithAnotherOneOnWhatAServerSends with -record", err)
	}
	for line := range strings.Lines(string(text)) {
		m, err := hex.DecodeString(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, m)
	}
	return messages
}

// spoken are transactions that have a server say all that pgoutput can say when it is asked as a Stream asks it.
var spoken = []string{
	`create type mood as enum ('good', 'bad');
	 create domain short as text check (length(value) < 1000);
	 create table plain (id bigint primary key, note text, feeling mood, brief short, many int[], at timestamptz);
	 create table whole (a int, b text);
	 alter table whole replica identity full;
	 create table indexed (a int not null, b text, c varchar(7) not null);
	 create unique index named on indexed (c, a);
	 alter table indexed replica identity using index named;
	 create table nameless (a int, b text);
	 create table "Ödd ""name""" ("Spalte 1" int primary key, sum int generated always as ("Spalte 1" + 1) stored);
	 create table parent (id int, day date, primary key (id, day)) partition by range (day);
	 create table parent_1 partition of parent for values from ('2026-01-01') to ('2026-02-01');
	 create table parent_2 partition of parent for values from ('2026-02-01') to ('2026-03-01');
	 create table child (of bigint references plain on delete cascade, n int, primary key (of, n));
	 alter table plain alter note set storage external;
	 create publication all_of_it for table plain, whole, indexed, nameless, "Ödd ""name""", parent, child`,
	`begin; insert into plain values (1, repeat('long ', 600), 'good', 'x', '{1,NULL,3}', '2026-11-21 10:00+00'), (2, null, null, null, null, null), (3, '', 'bad', '', '{}', 'infinity');
	 update plain set feeling = 'bad' where id = 1;
	 update plain set id = 4 where id = 2;
	 insert into child values (1, 1), (1, 2), (3, 1);
	 delete from plain where id = 1; commit`,
	`begin; insert into whole values (1, 'x'), (null, null); update whole set b = 'y' where a = 1; delete from whole; commit`,
	`begin; insert into indexed values (1, 'x', 'c'); update indexed set b = 'y'; update indexed set c = 'd'; delete from indexed; commit`,
	`insert into nameless values (1, 'Käse')`,
	`begin; insert into "Ödd ""name""" values (1), (2); delete from "Ödd ""name""" where "Spalte 1" = 1; alter table "Ödd ""name""" rename to renamed;
	 alter table renamed add more text; insert into renamed values (3, default, 'more'); delete from renamed; commit`,
	`begin; insert into parent values (1, '2026-01-01'), (2, '2026-02-02'); update parent set day = '2026-02-03' where id = 1; delete from parent where id = 2; commit`,
	`select pg_logical_emit_message(true, 'lapse', 'said')`,
	`begin; savepoint s; insert into plain values (5); rollback to s; insert into plain values (6); commit`,
	`truncate whole, parent`, `truncate plain restart identity cascade`,
	`select pg_replication_origin_create('upstream')`, `select pg_replication_origin_session_setup('upstream')`,
	`begin; select pg_replication_origin_xact_setup('0/ABC', '2026-11-21 10:00+00'); insert into plain values (7); delete from plain; commit`,
	`select pg_replication_origin_session_reset()`,
	`select pg_replication_origin_drop('upstream')`,
}

func TestTheDecoderAgreesWithAnotherOneOnWhatAServerSends(t *testing.T) {
	t.Parallel()
	pgtest.On(t, recordedMajors, func(t *testing.T, db *pgtest.DB) {
		conn := db.Connect(t)
		speak := func(sql string) {
			t.Helper()
			if _, err := conn.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
				t.Fatalf("%v\nin: %s", err, sql)
			}
		}
		if err := EnsurePublications(t.Context(), conn); err != nil {
			t.Fatal(err)
		}
		speak(spoken[0])
		if _, err := CreateSlot(t.Context(), conn, db.Name); err != nil {
			t.Fatal(err)
		}
		for _, sql := range spoken[1:] {
			speak(sql)
		}
		rows, err := conn.Query(t.Context(), `
			select data from pg_logical_slot_get_binary_changes($1, null, null,
			       'proto_version', '1', 'publication_names', 'all_of_it', 'messages', 'false', 'binary', 'false', 'streaming', 'false')`, db.Name)
		if err != nil {
			t.Fatal(err)
		}
		sent, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
		if err != nil {
			t.Fatal(err)
		}
		messages := make([]encoder, 0, len(sent))
		var text strings.Builder
		for _, m := range sent {
			messages = append(messages, m)
			fmt.Fprintf(&text, "%x\n", m)
		}
		wantAgreement(t, messages)
		wantEveryType(t, messages)
		if *record {
			major := fixture.One[int](t, conn, "select current_setting('server_version_num')::int / 10000")
			if err := os.WriteFile(recording(major), []byte(text.String()), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestTheDecoderAgreesWithAnotherOneOnWhatServersSent(t *testing.T) {
	t.Parallel()
	for _, major := range recordedMajors {
		messages := recorded(t, major)
		wantAgreement(t, messages)
		wantEveryType(t, messages)
	}
}

// wantEveryType wants a message of every type, and every kind of row and of value that each may have.
func wantEveryType(t *testing.T, messages []encoder) {
	t.Helper()
	seen := map[string]bool{}
	for _, m := range messages {
		kind := string(m[0])
		switch m[0] {
		case 'D', 'U', 'I':
			kind += string(m[5])
		case 'T':
			kind += fmt.Sprint(m[5])
		}
		seen[kind] = true
	}
	delivered, _, err := decodeStream(messages)
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{"[null ", "[unsent ", "[unchanged ", "[text "} {
		seen[value] = slices.ContainsFunc(delivered, func(s string) bool { return strings.Contains(s, value) })
	}
	for _, want := range []string{
		"B", "O", "C", "R", "Y", "IN", "UN", "UK", "UO", "DK", "DO", "T0", "T3", "[null ", "[unsent ", "[unchanged ", "[text ",
	} {
		if !seen[want] {
			t.Errorf("there is no message %q", want)
		}
	}
}
