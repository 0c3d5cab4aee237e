package evidence_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"lapse/audit/evidence"
	"lapse/internal/evidencetest"
	"lapse/replication"
)

// debeziumKey is the record's key of a deleted row with one column.
func debeziumKey(column replication.Column, text string) []byte {
	column.Key = true
	table := &replication.Relation{OID: 16800, Schema: "public", Name: "t", ReplicaIdentity: 'd', Columns: []replication.Column{column}}
	e := evidence.Event{}
	e.Set(exampleTx(), del(table, text), evidence.Finding{Op: evidence.Delete, Cause: evidence.User}, nil, "public.t")
	return evidence.NewRouter(routeOf(evidence.FormatDebezium), evidencetest.HashKey).Route(&e).Key
}

func TestValuesAreWrittenAsDebeziumWritesThem(t *testing.T) {
	t.Parallel()
	for _, r := range evidencetest.ReadRecorded(t).Values {
		key := debeziumKey(replication.Column{Name: r.Column, TypeOID: r.OID, TypeMod: r.Mod, Type: r.Named}, r.Text)
		var got map[string]json.RawMessage
		if err := json.Unmarshal(key, &got); err != nil {
			t.Errorf("%s: %v in %s", r.Column, err, key)
			continue
		}
		if !reflect.DeepEqual(evidencetest.Exactly(t, got[r.Column]), evidencetest.Exactly(t, r.Want())) {
			t.Errorf("%s: %s is written as %s, want %s", r.Column, r.Text, got[r.Column], r.Want())
		}
	}
}

// members are an object's names in their order, and the kinds of their values.
func members(t *testing.T, object []byte) (names, kinds []string) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(object))
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		var value any
		if err := d.Decode(&value); err != nil {
			t.Fatal(err)
		}
		names = append(names, name.(string))
		kinds = append(kinds, name.(string)+" "+reflect.ValueOf(&value).Elem().Elem().Kind().String())
	}
	return names, kinds
}

func TestADebeziumEventHasDebeziumsMembersAndALapseBlock(t *testing.T) {
	t.Parallel()
	theirs, ours := evidencetest.ReadRecorded(t).Events, examplesBy(t, routeOf(evidence.FormatDebezium))
	for op, name := range map[string]string{"d": "event-user", "u": "event-soft", "t": "event-truncate", "m": "event-gap"} {
		names, kinds := members(t, ours[name].Value)
		wantNames, wantKinds := members(t, theirs[op].Value)
		if !slices.Equal(names, append(wantNames, "lapse")) || !slices.Equal(kinds, append(wantKinds, "lapse map")) {
			t.Errorf("%s: members %v, want %v", op, kinds, wantKinds)
		}
		var event, want struct {
			Op      string
			Source  json.RawMessage
			Message json.RawMessage
		}
		if err := json.Unmarshal(ours[name].Value, &event); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(theirs[op].Value, &want); err != nil {
			t.Fatal(err)
		}
		_, kinds = members(t, event.Source)
		if _, wantKinds = members(t, want.Source); op == "m" { // a marker is of no transaction
			wantKinds[slices.Index(wantKinds, "txId float64")] = "txId invalid"
		}
		if !slices.Equal(kinds, wantKinds) || event.Op != want.Op {
			t.Errorf("%s: op %s, source %v, want %v", op, event.Op, kinds, wantKinds)
		}
		if op != "m" {
			continue
		}
		_, kinds = members(t, event.Message)
		if _, wantKinds = members(t, want.Message); !slices.Equal(kinds, wantKinds) {
			t.Errorf("message %v, want %v", kinds, wantKinds)
		}
	}
}

func TestDebeziumEventsAreTheirGoldenFilesAndFitTheSchema(t *testing.T) {
	t.Parallel()
	for name, routed := range examplesBy(t, routeOf(evidence.FormatDebezium)) {
		golden(t, "event-debezium", "debezium-"+name, routed.Value)
	}
}

// Whatever the server sends, by whatever type, is JSON with nothing lost: what is not written by its type is the text itself.
func TestAnyTextIsWrittenByAnyTypeAsJSON(t *testing.T) {
	t.Parallel()
	var oids []uint32
	var texts []string
	for _, r := range evidencetest.ReadRecorded(t).Values {
		oids, texts = append(oids, r.OID), append(texts, r.Text)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom(texts).Draw(t, "text")
		if rapid.Bool().Draw(t, "changed") && text != "" {
			at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
			text = text[:at] + rapid.StringMatching(`[-+{}",:\\. 0-9a-zTNUL]{0,4}`).Draw(t, "put") + text[at+rapid.IntRange(0, 1).Draw(t, "less"):]
		}
		column := replication.Column{
			Name: "c", TypeOID: rapid.SampledFrom(oids).Draw(t, "oid"), TypeMod: rapid.SampledFrom([]int32{-1, 0, 1, 3, 6, 655366}).Draw(t, "mod"),
		}
		var key struct{ C json.RawMessage }
		if err := json.Unmarshal(debeziumKey(column, text), &key); err != nil || len(key.C) == 0 || string(key.C) == "null" {
			t.Fatalf("%q by type %d: %s, %v", text, column.TypeOID, key.C, err)
		}
	})
}

func TestAValueThatDoesNotHaveTheFormOfItsTypeIsText(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		oid  uint32
		text string
	}{
		{16, "true"},
		{20, "1x"},
		{20, "01"},
		{20, ""},
		{20, "-"},
		{20, "1e5"},
		{20, "1.0"},
		{701, "1."},
		{701, "1e"},
		{790, "€1"},
		{17, "abc"},
		{17, `\xa`},
		{1560, "102"},
		{1082, "2026-13-01"},
		{1082, "2026-11"},
		{1083, "10:15"},
		{1083, "10:15:30.1234567"},
		{1266, "10:15:30"},
		{1114, "2026-11-21"},
		{1114, "294276-12-31 00:00:00"},
		{1184, "2026-11-21 10:15:30+01"},
		{1184, "2026-11-21 10:15:30"},
		{1186, "1 week"},
		{1186, "infinity"},
		{1186, ""},
		{1186, "5"},
		{1007, "{1"},
		{1007, "{1,}"},
		{1007, "{1}x"},
		{1007, "1"},
		{1007, "{{{{{{{1}}}}}}}"},
		{1009, `{"a}`},
		{1009, `{a\`},
		{600, "(1,2)"},
		{1700, "NaN"},
	} {
		key := debeziumKey(replication.Column{Name: "c", TypeOID: test.oid, TypeMod: -1}, test.text)
		if want := append(evidence.AppendText([]byte(`{"c":`), test.text, evidence.UTF8Text), '}'); !bytes.Equal(key, want) {
			t.Errorf("%q by type %d: %s", test.text, test.oid, key)
		}
	}
	if key := debeziumKey(replication.Column{Name: "c", TypeOID: 1007, TypeMod: -1}, "[-1:1]={1,2,3}"); string(key) != `{"c":[1,2,3]}` {
		t.Errorf("an array with bounds is %s", key)
	}
}

func TestALongValueIsAHashWhateverItsType(t *testing.T) {
	t.Parallel()
	table := relation(16810, "public", "t", "a*", "b*")
	table.Columns[0].TypeOID, table.Columns[1].TypeOID = 17, 20
	long := `\x` + string(bytes.Repeat([]byte("ff"), 60_000))
	routed := eventOf(t, routeOf(evidence.FormatDebezium), exampleTx(), del(table, long, 7))
	if want := `{"a":"` + evidencetest.HashOf(long) + `","b":7}`; string(routed.Key) != want {
		t.Errorf("key %s, want %s", routed.Key, want)
	}
	if !bytes.Contains(routed.Value, []byte(`"hashed":["a"],"sizes":[120002]`)) {
		t.Errorf("event %s", routed.Value)
	}
}

func TestTheSchemaRefusesADebeziumEventThatSaysTooMuch(t *testing.T) {
	t.Parallel()
	events := examplesBy(t, routeOf(evidence.FormatDebezium))
	for _, test := range []struct{ name, from, old, new string }{
		{"a deleted row that is there after", "event-user", `"after":null`, `"after":{"id":42}`},
		{"a deletion without its row", "event-user", `"before":{"id":42}`, `"before":null`},
		{"a row without columns", "event-user", `"before":{"id":42}`, `"before":{}`},
		{"a row of a table with full identity", "event-full", `"before":null`, `"before":{"id":42}`},
		{"a row without a name and no word of it", "event-nameless", `,"identity":"none"`, ``},
		{"a user's update", "event-user", `"op":"d"`, `"op":"u"`},
		{"a deletion that says where to", "event-user", `"table_oid"`, `"moved_to":"public.t","table_oid"`},
		{"a move that does not say where to", "event-move", `"moved_to"`, `"moved_tu"`},
		{"a move from nowhere", "event-move", `"before":{"id":42,"day":20726}`, `"before":null`},
		{"a move to nowhere", "event-move", `"after":{"id":42,"day":20727}`, `"after":null`},
		{"an unverified move", "event-move", `"cause":"user"`, `"cause":"unverified"`},
		{"a system event without a batch", "event-system", `"batch"`, `"batsch"`},
		{"an unverified event with an origin", "event-unverified", `"origin":null`, `"origin":"upstream"`},
		{"an unverified event with a policy", "event-unverified", `"cause":"unverified"`, `"cause":"unverified","policy":"p"`},
		{"a gap with a row", "event-gap", `"op":"m"`, `"before":{"id":42},"op":"m"`},
		{"a gap without a message", "event-gap", `"message"`, `"messages"`},
		{"a rewind that does not say from where", "event-rewind", `"from"`, `"form"`},
		{"a truncate with a row", "event-truncate", `"before":null`, `"before":{"id":42}`},
		{"a deletion without a cause", "event-user", `"cause":"user"`, `"cause":""`},
	} {
		value := bytes.Replace(events[test.from].Value, []byte(test.old), []byte(test.new), 1)
		if bytes.Equal(value, events[test.from].Value) {
			t.Errorf("%s: nothing was changed", test.name)
		}
		if evidencetest.Schema(t, "event-debezium").Validate(evidencetest.ParseJSON(t, value)) == nil {
			t.Errorf("the schema takes %s", test.name)
		}
	}
}
