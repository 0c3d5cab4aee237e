package audit_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"lapse/audit"
	"lapse/internal/kafkatest"
	"lapse/internal/pgtest"
	"lapse/replication"
	"lapse/schemas"
)

// recordLimit is less than a third of what the publisher takes: see kafka.Config.MaxBatchBytes.
const recordLimit = 256 << 10

func hashOf(value string) string {
	mac := hmac.New(sha256.New, hashKey)
	mac.Write([]byte(value))
	return "hmac-sha256:" + hex.EncodeToString(mac.Sum(nil))
}

// full makes of a change what the server sends of a table with REPLICA IDENTITY FULL.
func full(change *replication.Change, values ...any) *replication.Change {
	described := *change.Relation
	described.ReplicaIdentity, described.Columns = 'f', allKey(described.Columns)
	change.Relation, change.Old, change.OldIsKey = &described, row(values...), false
	return change
}

// allKey flags every column as key, as the server does.
func allKey(columns []replication.Column) []replication.Column {
	all := append([]replication.Column(nil), columns...)
	for i := range all {
		all[i].Key = true
	}
	return all
}

func sizeOf(r *audit.Routed) int {
	n := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

// keysOf is what an event says of its row.
func keysOf(t *testing.T, value []byte) (keys map[string]string, hashed []string) {
	t.Helper()
	var e struct {
		Mods []struct {
			Keys map[string]string `json:"keys"`
		} `json:"mods"`
		Lapse struct {
			Hashed []string `json:"hashed"`
		} `json:"lapse"`
	}
	if err := json.Unmarshal(value, &e); err != nil || len(e.Mods) != 1 {
		t.Fatalf("%v in %.200s", err, value)
	}
	return e.Mods[0].Keys, e.Lapse.Hashed
}

func TestOnlyLongValuesOfLongKeysAreHashed(t *testing.T) {
	t.Parallel()
	r := relation(16600, "public", "t", "a*", "b*", "c*")
	long := strings.Repeat("\x01", 11_000) // 66,000 bytes as JSON
	brief, limit := strings.Repeat("y", 257), strings.Repeat("z", 256)
	keys, hashed := keysOf(t, eventOf(t, &exampleRoute, exampleTx(), del(r, long, limit, brief)).Value)
	if keys["a"] != hashOf(long) || keys["b"] != limit || keys["c"] != hashOf(brief) || fmt.Sprint(hashed) != "[a c]" {
		t.Errorf("keys %v, hashed %v", keys, hashed)
	}
	almost := strings.Repeat("x", 65_000)
	keys, hashed = keysOf(t, eventOf(t, &exampleRoute, exampleTx(), del(r, almost, "1", "2")).Value)
	if keys["a"] != almost || hashed != nil {
		t.Errorf("keys of less than 64 KiB were hashed: %v", hashed)
	}
}

// An index has 32 columns at most, and a name 63 bytes.
func TestNoKeyIsTooLongForATopic(t *testing.T) {
	t.Parallel()
	raw := exampleRoute
	raw.Source.Encoding = "SQL_ASCII"
	name := func(i int) string { return strings.Repeat("\x01", 61) + fmt.Sprintf("%02d", i) }
	for _, length := range []int{256, 257, 335, 345, 10_000, 700_000} {
		for _, long := range []int{1, 31, 32} { // columns of that length; the others are as long as is never hashed
			var columns []string
			var values []any
			for i := range 32 {
				columns = append(columns, name(i)+"*")
				if i < long {
					values = append(values, strings.Repeat("\x01", length))
				} else {
					values = append(values, strings.Repeat("\x01", 256))
				}
			}
			table := relation(4294967295, strings.Repeat(`"`, 63), strings.Repeat("\x01", 63), columns...)
			for _, route := range []*audit.Route{&exampleRoute, &raw} {
				routed := eventOf(t, route, exampleTx(), del(table, values...))
				if n := sizeOf(routed); n > recordLimit {
					t.Errorf("%d values of %d bytes make a record of %d", long, length, n)
				}
				if err := compileSchema(t, "event").Validate(parseJSON(t, routed.Value)); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

func TestHashesDependOnTheValueAndTheKeyAlone(t *testing.T) {
	t.Parallel()
	tx, e := exampleTx(), audit.Event{}
	long := strings.Repeat("k", 100_000)
	finding := audit.Finding{Op: audit.Delete, Cause: audit.User}
	set := func(value string) { e.Set(tx, del(target, value), finding, nil, "public.sessions") }
	used := audit.NewRouter(&exampleRoute, hashKey)
	set(long)
	first := describe(used.Route(&e))
	for _, other := range []string{"1", long + "2", strings.Repeat("3", 90_000)} {
		set(other)
		if describe(used.Route(&e)) == first {
			t.Errorf("%.1s… has the bytes of another row", other)
		}
	}
	set(long)
	if describe(used.Route(&e)) != first || describe(audit.NewRouter(&exampleRoute, hashKey).Route(&e)) != first {
		t.Error("the same row has other bytes")
	}
	if describe(audit.NewRouter(&exampleRoute, bytes.Repeat([]byte{8}, 32)).Route(&e)) == first {
		t.Error("another key gives the same hash")
	}
}

func TestAnAuditorWithoutAHashKeyIsRefused(t *testing.T) {
	t.Parallel()
	for _, key := range []schemas.Key{nil, hashKey[:31]} {
		config := settings{System: "a", User: "b", Log: "c"}.config()
		config.HashKey = key
		if _, err := audit.New(config); !errors.Is(err, schemas.ErrKeyTooShort) {
			t.Errorf("a key of %d bytes: %v", len(key), err)
		}
	}
	if text := fmt.Sprintf("%v %s %#v", hashKey, hashKey, hashKey); strings.Contains(text, "9") || strings.Contains(text, "\t") {
		t.Error("the key shows itself")
	}
}

func TestALogGoesOnUnderItsOwnHashKeyOnly(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.begun(t)
		r.refused(t, audit.ErrRouteChanged, func(c *audit.Config) { c.HashKey = bytes.Repeat([]byte{8}, 32) })
	})
}

// Whoever may insert a row may give it a key that PostgreSQL compresses to almost nothing, and that is 900 kB as JSON.
func TestAHugeKeyDoesNotStopTheAudit(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
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
			keys, hashed := keysOf(t, record.Value)
			short = short || keys["id"] == "short" && hashed == nil
			huge = huge || keys["id"] == hashOf(strings.Repeat("\x01", 150_000)) && fmt.Sprint(hashed) == "[id]" &&
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
			if err == nil {
				t.Fatal("a row that cannot be named was deleted")
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

// Partitions by the thousand may be emptied by one statement.
func TestARecordOfATransactionWithManyTablesIsBounded(t *testing.T) {
	t.Parallel()
	claim := exampleClaim()
	changes := []*replication.Change{signed(claim), del(target, 1)}
	for i := range 3000 {
		r := relation(uint32(20_000+i), strings.Repeat("\x01", 63), strings.Repeat(`"`, 59)+fmt.Sprintf("%04d", i), "id*")
		changes = append(changes, del(r, 1), del(r, 2), truncate(r))
	}
	result := resultRow(claim, 1)
	counts := map[string]int{fmt.Sprint(target.OID): 1}
	for i := range 40_000 {
		counts[fmt.Sprint(4_000_000_000+i)] = 1
	}
	text, err := json.Marshal(counts)
	if err != nil {
		t.Fatal(err)
	}
	result.New[3] = row(string(text))[0]
	account := accountOf(append(changes, result)...)
	leaf := audit.NewScribe(&exampleRoute).Transaction(exampleTx(), account, audit.Reconcile(account))
	if len(leaf.Value) > 600<<10 {
		t.Errorf("the record is of %d bytes", len(leaf.Value))
	}
	if err := compileSchema(t, "log-transaction").Validate(parseJSON(t, leaf.Value)); err != nil {
		t.Error(err)
	}
	var record struct {
		Claimed struct {
			ByRelation []json.RawMessage `json:"by_relation"`
			Others     struct{ Tables, Rows int }
		}
		Observed []struct{ Events int }
		Others   []struct {
			Op             string
			Tables, Events int
		}
	}
	if err := json.Unmarshal(leaf.Value, &record); err != nil {
		t.Fatal(err)
	}
	tables, events := len(record.Observed), 0
	for _, o := range record.Observed {
		events += o.Events
	}
	for _, o := range record.Others {
		tables, events = tables+o.Tables, events+o.Events
	}
	if len(record.Others) != 2 || tables != 6001 || events != 9001 {
		t.Errorf("%d tables and operations with %d events, want 6001 with 9001; others: %v", tables, events, record.Others)
	}
	if c := record.Claimed; len(c.ByRelation)+c.Others.Tables != 40_001 || len(c.ByRelation)+c.Others.Rows != 40_001 {
		t.Errorf("%d relations claimed and %v others", len(c.ByRelation), c.Others)
	}
}
