package audit_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"lapse/audit"
	"lapse/internal/evidencetest"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/replication"
	"lapse/schemas"
)

func TestAnAuditorWithoutAHashKeyIsRefused(t *testing.T) {
	t.Parallel()
	for _, key := range []schemas.Key{nil, evidencetest.HashKey[:31]} {
		config := settings{System: "a", User: "b", Log: "c"}.config()
		config.HashKey = key
		if _, err := audit.New(config); !errors.Is(err, schemas.ErrKeyTooShort) {
			t.Errorf("a key of %d bytes: %v", len(key), err)
		}
	}
	if text := fmt.Sprintf("%v %s %#v", evidencetest.HashKey, evidencetest.HashKey, evidencetest.HashKey); strings.Contains(text, "9") || strings.Contains(text, "\t") {
		t.Error("the key shows itself")
	}
}

// A user may insert a key that PostgreSQL compresses to almost nothing, and that is 900 kB as JSON.
func TestAHugeKeyDoesNotStopTheAudit(t *testing.T) {
	onHeavy(t, func(t *testing.T, r *rig) {
		conn := r.db.Connect(t)
		r.db.Exec(t, `create table named (id text primary key)`)
		if err := publish(t.Context(), conn, replication.Join, "named"); err != nil {
			t.Fatal(err)
		}
		r.db.Exec(t, `insert into named values (repeat(chr(1), 150000)), ('short')`)
		r.db.Exec(t, `delete from named where id <> 'short'`)
		r.db.Exec(t, `delete from named`)
		r.once(t)
		records := r.read(t, r.settings.User)
		if len(records) != 2 {
			t.Fatalf("%d events of 2 deletes", len(records))
		}
		var huge, short bool
		for _, record := range records {
			r.checkEvent(t, r.settings.User, record)
			keys, hashed := evidencetest.KeysOf(t, record.Value)
			short = short || keys["id"] == "short" && hashed == nil
			huge = huge || keys["id"] == evidencetest.HashOf(strings.Repeat("\x01", 150_000)) && fmt.Sprint(hashed) == "[id]" &&
				string(record.Key) == `{"id":"`+keys["id"]+`"}`
		}
		if !huge || !short {
			t.Errorf("hashed %t, kept %t", huge, short)
		}
		r.readLog(t)
	})
}

func TestRowsOfATableWithFullIdentityAreNotPublished(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		conn := r.db.Connect(t)
		r.db.Exec(t, `create table "Patients" (id int primary key, diagnosis text)`)
		if err := publish(t.Context(), conn, replication.Join, `"Patients"`); err != nil {
			t.Fatal(err)
		}
		r.db.Exec(t, `insert into "Patients" select i, 'diagnosis-of-' || i from generate_series(101, 105) i`)
		r.db.Exec(t, `insert into "Patients" values (100, repeat('diagnosis', 400000))`) // more than is read of what nobody wants
		r.db.Exec(t, `alter table "Patients" replica identity full`)
		r.db.Exec(t, `delete from "Patients" where id < 105`)
		r.db.Exec(t, `alter table "Patients" replica identity default`)
		r.db.Exec(t, `delete from "Patients"`)
		log := &testLog{t: t}
		r.once(t, func(c *audit.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
		records := r.read(t, r.settings.User)
		nameless := 0
		for _, record := range records {
			r.checkEvent(t, r.settings.User, record)
			if bytes.Contains(record.Value, []byte("diagnosis")) || bytes.Contains(record.Key, []byte("diagnosis")) {
				t.Errorf("values are in the topic: %s", record.Value)
			}
			if string(record.Key) == "{}" && bytes.Contains(record.Value, []byte(`"identity":"full"`)) {
				nameless++
			}
		}
		if len(records) != 6 || nameless != 5 {
			t.Errorf("%d events, %d of them without keys; want 6 and 5", len(records), nameless)
		}
		said := log.String()
		if n := strings.Count(said, `replica identity default`); n != 1 || !strings.Contains(said, `alter table public.\"Patients\" replica`) {
			t.Errorf("warned %d times:\n%s", n, said)
		}
		if strings.Contains(said, "diagnosis") {
			t.Error("values are in the log")
		}
	})
}

// What is refused when a table joins can come to it later.
func TestATableWhoseKeyBecomesGeneratedDoesNotStopTheAudit(t *testing.T) {
	t.Parallel()
	pgtest.On(t, []int{14, 15, 17, 18}, func(t *testing.T, db *pgtest.DB) {
		r := newRig(t, db, kafkatest.Broker(t))
		conn := db.Connect(t)
		db.Exec(t, `create table visit (id int primary key, twice int generated always as (id * 2) stored) partition by range (id);
			create table visit_1 partition of visit for values from (0) to (100)`)
		if err := publish(t.Context(), conn, replication.Join, "visit"); err != nil {
			t.Fatal(err)
		}
		db.Exec(t, `insert into visit select generate_series(1, 6)`, `delete from visit where id = 1`,
			`alter table visit_1 alter twice set not null, add constraint visit_twice unique (twice), replica identity using index visit_twice`)
		_, err := conn.Exec(t.Context(), `delete from visit where id in (2, 3)`)
		if db.Major >= 18 {
			// It asks before the row is gone: the table's own deletes fail.
			if state := schemas.StateOf(err); state != "42P10" { // invalid_column_reference
				t.Fatalf("got %v, want the server to refuse the delete of a row that cannot be named", err)
			}
			db.Exec(t, `alter table visit_1 replica identity default`, `delete from visit where id in (2, 3)`,
				`alter table visit_1 replica identity using index visit_twice`)
		} else if err != nil {
			t.Fatal(err)
		}
		db.Exec(t, `alter table visit_1 replica identity default`, `delete from visit where id = 4`)
		log := &testLog{t: t}
		r.once(t, func(c *audit.Config) { c.Logger = slog.New(slog.NewTextHandler(log, nil)) })
		records := r.read(t, r.settings.User)
		nameless := 0
		for _, record := range records {
			r.checkEvent(t, r.settings.User, record)
			if string(record.Key) == "{}" && bytes.Contains(record.Value, []byte(`"identity":"none"`)) {
				nameless++
			}
		}
		want := 2
		if db.Major >= 18 {
			want = 0
		}
		if len(records) != 4 || nameless != want {
			t.Errorf("%d events, %d of them without keys; want 4 and %d", len(records), nameless, want)
		}
		if n := strings.Count(log.String(), `alter table public.visit_1 replica identity using index`); n != min(want, 1) {
			t.Errorf("warned %d times:\n%s", n, log.String())
		}
		r.readLog(t)
	})
}
