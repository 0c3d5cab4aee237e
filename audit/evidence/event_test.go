package evidence_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"lapse/audit/evidence"
	"lapse/internal/evidencetest"
	"lapse/replication"
	"lapse/schemas"
)

var update = flag.Bool("update", false, "write the golden files")

var exampleRoute = evidence.Route{
	Version: 1, Source: source,
	System: evidence.Topic{Name: "lapse.deletes.system", Partitions: 6},
	User:   evidence.Topic{Name: "lapse.deletes.user", Partitions: 6},
	Log:    evidence.Topic{Name: "lapse.log", Partitions: 1},

	Format:  evidence.FormatSpanner,
	HashKey: "8c0cc17a04942cc4f8e0fe0b302606d3",

	PublicKey: "app.example.com/lapse+6fa3b1e3+AXJ4sNFU4jSb3N9XyH4E5PHzWcQ3LlQ2tLyxFSC1j9NH",
	RowsKeys: []evidence.RowsKey{
		{Epoch: "2026-10"},
		{Epoch: "2026-11", Fingerprint: schemas.Fingerprint(evidencetest.RowsKey)},
		{Epoch: "2026-12", Fingerprint: "0f4bb5f83d6cbb4bb2b1e9ae43f2ed68"},
	},
}

// golden compares bytes with a golden file and its schema.
func golden(t *testing.T, schema, name string, value []byte) {
	t.Helper()
	path := filepath.Join(evidencetest.SchemasDir(), "golden", name+".json")
	if *update {
		if err := os.WriteFile(path, value, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(value, want) {
		t.Errorf("%s:\n got %s\nwant %s", name, value, want)
	}
	if err := evidencetest.Schema(t, schema).Validate(evidencetest.ParseJSON(t, value)); err != nil {
		t.Errorf("%s: %v", name, err)
	}
}

// eventOf sends changes through the assembler and returns what the last of them is routed as.
func eventOf(t *testing.T, route *evidence.Route, tx *replication.Tx, changes ...*replication.Change) *evidence.Routed {
	t.Helper()
	a := evidence.NewAssembler(route.Source, []schemas.Key{evidencetest.TagKey}, evidence.Standing{})
	a.Begin(tx)
	for i, change := range changes {
		change.Ordinal = uint32(i)
		a.Change(change)
		if i == len(changes)-1 {
			break
		}
		drain(a)
	}
	return evidence.NewRouter(route, evidencetest.HashKey).Route(a.Next())
}

// partitionEvent is a delete from a partition that a heartbeat has found.
func partitionEvent(route *evidence.Route) *evidence.Routed {
	part := numbered(relation(16540, "public", "sessions_2026_09", "id*"))
	known, _ := evidence.NewCoveredTable(1, part.OID, "public.sessions_2026_09", "public.sessions", "", 0, "", false, false)
	a := assembler(evidence.Standing{Tables: []evidence.CoveredTable{known}})
	a.Begin(exampleTx())
	a.Change(del(part, 42))
	return evidence.NewRouter(route, evidencetest.HashKey).Route(a.Next())
}

// drain takes what is certain.
func drain(a *evidence.Assembler) (n int) {
	for a.Next() != nil {
		n++
	}
	return n
}

// markerOf is the first record of a marker as an event is routed.
func markerOf(route *evidence.Route, m *evidence.Marker) *evidence.Routed {
	records := evidence.NewRouter(route, evidencetest.HashKey).RouteMarker(m)
	first := records[0]
	return &evidence.Routed{Topic: first.Topic, Partitions: []int32{first.Partition}, Key: first.Key, Value: first.Value, Headers: first.Headers}
}

func exampleEvents(t *testing.T) map[string]*evidence.Routed {
	t.Helper()
	return examplesBy(t, &exampleRoute)
}

// examplesBy are the example events as they are routed.
func examplesBy(t *testing.T, route *evidence.Route) map[string]*evidence.Routed {
	t.Helper()
	fromElsewhere := exampleTx()
	fromElsewhere.Origin = "upstream"
	odd := relation(16510, "shop", `Orders "old"`, "tenant*", "no*", "note")
	raw := *route
	raw.Source.Encoding = "SQL_ASCII"
	emptied := truncate(target)
	emptied.Cascade, emptied.RestartIdentity = true, true
	generated := relation(16530, "public", "generated", "note")
	return map[string]*evidence.Routed{
		"event-system":     eventOf(t, route, exampleTx(), signed(exampleClaim()), del(target, 42)),
		"event-cascade":    eventOf(t, route, exampleTx(), signed(exampleClaim()), del(target, 42), del(child, 42, 1)),
		"event-soft":       eventOf(t, route, exampleTx(), softly(signed(softClaim()), "t"), set(target, 42, "2026-11-21")),
		"event-stolen":     eventOf(t, route, exampleTx(), softly(batchRow(softClaim(), nil), "t"), set(target, 42, "2026-11-21")),
		"event-columns":    eventOf(t, route, exampleTx(), promising(signed(exampleClaim()), toldWide, dueWide), wideRow(longAgo)),
		"event-notdue":     eventOf(t, route, exampleTx(), promising(signed(exampleClaim()), "", dueWide), wideRow(lately)),
		"event-user":       eventOf(t, route, exampleTx(), del(target, 42)),
		"event-origin":     eventOf(t, route, fromElsewhere, del(odd, "Käse & \"Brot\"\n\u0001</b>", nil)),
		"event-unverified": eventOf(t, route, fromElsewhere, batchRow(exampleClaim(), nil), del(target, 42)),
		"event-root":       partitionEvent(route),
		"event-move":       moveEvent(route),
		"event-drop":       eventOf(t, route, exampleTx(), dropped(exampleClaim())),
		"event-truncate":   eventOf(t, route, exampleTx(), emptied),
		"event-hashed":     eventOf(t, route, exampleTx(), del(odd, strings.Repeat("Käse", 20_000), "7")),
		"event-full":       eventOf(t, route, exampleTx(), full(del(target), 42, "2026-11-21")),
		"event-gap":        markerOf(route, exampleMarker(evidence.Gap)),
		"event-rewind":     markerOf(route, exampleMarker(evidence.Rewind)),
		"event-nameless":   eventOf(t, route, exampleTx(), del(generated, nil)),
		"event-raw":        eventOf(t, &raw, exampleTx(), del(target, "caf\xe9 \xc3\xa9 \uef81")),
	}
}

func TestEventsAreTheirGoldenFilesAndFitTheSchema(t *testing.T) {
	t.Parallel()
	for name, routed := range exampleEvents(t) {
		golden(t, "event", name, routed.Value)
	}
}

func TestTheSchemaRefusesAnEventThatSaysTooMuch(t *testing.T) {
	t.Parallel()
	compiled := evidencetest.Schema(t, "event")
	events := exampleEvents(t)
	for _, test := range []struct{ name, from, old, new string }{
		{"an unverified event with a policy", "event-unverified", `"cause":"unverified"`, `"cause":"unverified","policy":"sessions-30d"`},
		{"an unverified event with an origin", "event-unverified", `"cause":"unverified"`, `"cause":"unverified","origin":"upstream"`},
		{"a user event with the tag", "event-user", `"transaction_tag":""`, `"transaction_tag":"RowDeletionPolicy"`},
		{"a user's update", "event-user", `"mod_type":"DELETE"`, `"mod_type":"UPDATE"`},
		{"a system event without a batch", "event-system", `"batch"`, `"batsch"`},
		{"a delete with old values", "event-user", `"old_values":{}`, `"old_values":{"last_seen":"x"}`},
		{"a policy's delete with old values that it did not list", "event-system", `"old_values":{}`, `"old_values":{"last_seen":"x"}`},
		{"columns without a value", "event-system", `"KEYS"`, `"COLUMNS"`},
		{"a judgement of a user's delete", "event-user", `"ordinal":0`, `"ordinal":0,"due":true`},
		{"a judgement of what a cascade deletes", "event-cascade", `"ordinal":2`, `"ordinal":2,"due":true`},
		{"a number for a key", "event-user", `{"id":"42"}`, `{"id":42}`},
		{"a delete without a row", "event-user", `{"id":"42"}`, `{}`},
		{"a row of a table with full identity", "event-full", `"keys":{}`, `"keys":{"id":"42"}`},
		{"a row that was not named, with a key", "event-nameless", `"keys":{}`, `"keys":{"id":"42"}`},
		{"a row without a name and no word of it", "event-nameless", `,"identity":"none"`, ``},
		{"a truncate with an identity", "event-truncate", `"ordinal":0`, `"ordinal":0,"identity":"full"`},
		{"hashes of no column", "event-user", `"ordinal":0`, `"ordinal":0,"hashed":[]`},
		{"sizes of what is not hashed", "event-user", `"ordinal":0`, `"ordinal":0,"sizes":[300]`},
		{"a gap with a cause", "event-gap", `"cause":""`, `"cause":"user"`},
		{"a gap with a table", "event-gap", `"table_name":""`, `"table_name":"public.sessions"`},
		{"a rewind that does not say from where", "event-rewind", `"from"`, `"form"`},
		{"a delete without a cause", "event-user", `"cause":"user"`, `"cause":""`},
		{"a gap with a root", "event-gap", `"reason"`, `"root":"public.sessions","reason"`},
		{"a user's drop", "event-truncate", `"TRUNCATE"`, `"DROP"`},
		{"a drop that does not say how many rows", "event-drop", `"rows"`, `"rowz"`},
		{"a drop with a row", "event-drop", `"mods":[]`, `"mods":[{"keys":{"id":"42"},"old_values":{},"new_values":{}}]`},
		{"a drop with the tag of rows", "event-drop", `"PartitionDropPolicy"`, `"RowDeletionPolicy"`},
		{"a delete with the tag of drops", "event-system", `"RowDeletionPolicy"`, `"PartitionDropPolicy"`},
		{"a delete with a number of rows", "event-system", `"table_oid"`, `"rows":7,"table_oid"`},
		{"a deleted row that is elsewhere", "event-user", `"new_values":{}`, `"new_values":{"id":"42"}`},
		{"a deletion that says where to", "event-root", `"root"`, `"moved_to":"public.sessions_2026_10","root"`},
		{"a move that does not say where to", "event-move", `"moved_to"`, `"moved_tu"`},
		{"a move to nowhere", "event-move", `"new_values":{"id":"42","day":"2026-10-01"}`, `"new_values":{}`},
		{"a policy's move", "event-system", `"DELETE"`, `"MOVE"`},
		{"an unverified move", "event-move", `"cause":"user"`, `"cause":"unverified"`},
		{"a truncate with a row", "event-truncate", `"mods":[]`, `"mods":[{"keys":{"id":"42"},"old_values":{},"new_values":{}}]`},
	} {
		value := bytes.Replace(events[test.from].Value, []byte(test.old), []byte(test.new), 1)
		if bytes.Equal(value, events[test.from].Value) {
			t.Errorf("%s: nothing was changed", test.name)
		}
		if compiled.Validate(evidencetest.ParseJSON(t, value)) == nil {
			t.Errorf("the schema takes %s", test.name)
		}
	}
}

func TestKeysOfEachRowAreInTheTablesOrderAndOnlyItsIdentity(t *testing.T) {
	t.Parallel()
	r := relation(16520, "public", "t", "z*", "payload", "a*")
	change := del(r, "1", "2")
	change.Old[1] = row("secret")[0] // as under REPLICA IDENTITY USING INDEX the server never sends it; if it did
	routed := eventOf(t, &exampleRoute, exampleTx(), change)
	if got, want := string(routed.Key), `{"z":"1","a":"2"}`; got != want {
		t.Errorf("key is %s, want %s", got, want)
	}
	if bytes.Contains(routed.Value, []byte("secret")) {
		t.Error("the event has a value that is not of the identity")
	}
}

func TestADeleteWhoseIdentityWasNotSentIsAnEventWithoutKeys(t *testing.T) {
	t.Parallel()
	finding := evidence.Finding{Op: evidence.Delete, Cause: evidence.User}
	unsent, unchanged := del(child, 1, 2), del(child, 1, 2)
	unsent.Old[1].Kind = replication.Unsent // the second of two
	unchanged.Old[1].Kind = replication.Unchanged
	for name, change := range map[string]*replication.Change{
		"no column of the key":  del(relation(16530, "public", "none", "id"), 1),
		"no column at all":      del(relation(16530, "public", "none")),
		"a column was not sent": unsent,
		"a column was too long": unchanged,
	} {
		var e evidence.Event
		e.Set(exampleTx(), change, finding, nil, "public.none")
		if !e.Nameless || e.Full || len(e.Keys) != 0 {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

func TestTextBecomesJSONThatReadsBackAsTheSameText(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "text")
		var back string
		written := evidence.AppendText(nil, s, evidence.UTF8Text)
		if err := json.Unmarshal(written, &back); err != nil || back != s {
			t.Fatalf("%q was written as %s and read back as %q (%v)", s, written, back, err)
		}
	})
}

func FuzzRawTextReadsBackAsTheSameBytes(f *testing.F) {
	for _, s := range []string{"", "plain", "caf\xe9", "\uef80\uefff", "\xed\xa0\x80", "é\xff\xc3", "\"\\\x00\x1f\x7f"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		written := evidence.AppendText(nil, string(b), evidence.RawText)
		var text string
		if err := json.Unmarshal(written, &text); err != nil {
			t.Fatalf("%q was written as %s: %v", b, written, err)
		}
		if !utf8.Valid(written) {
			t.Fatalf("%q was written as %q, which is not UTF-8", b, written)
		}
		if back := evidence.DecodeText(text); !bytes.Equal(back, b) {
			t.Fatalf("%q was written as %s and read back as %q", b, written, back)
		}
	})
}

func TestTableNamesAreQuotedWhereTheyMustBe(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ schema, name, want string }{
		{"public", "sessions", "public.sessions"},
		{"public", "sessions_2026$1", "public.sessions_2026$1"},
		{"public", "a.b", `public."a.b"`},
		{"Shop", `Orders "old"`, `"Shop"."Orders ""old"""`},
		{"public", "1st", `public."1st"`},
		{"public", "größe", `public."größe"`},
	} {
		if got := evidence.TableName(&replication.Relation{Schema: test.schema, Name: test.name}); got != test.want {
			t.Errorf("%s and %s: got %s, want %s", test.schema, test.name, got, test.want)
		}
	}
}
