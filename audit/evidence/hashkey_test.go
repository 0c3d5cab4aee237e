package evidence_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"lapse/audit/evidence"
	"lapse/internal/evidencetest"
	"lapse/replication"
)

// recordLimit is less than a third of what the publisher takes: see kafka.Config.MaxBatchBytes.
const recordLimit = 256 << 10

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

func sizeOf(r *evidence.Routed) int {
	n := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Key) + len(h.Value)
	}
	return n
}

func TestOnlyLongValuesOfLongKeysAreHashed(t *testing.T) {
	t.Parallel()
	r := relation(16600, "public", "t", "a*", "b*", "c*")
	long := strings.Repeat("\x01", 11_000) // 66,000 bytes as JSON
	brief, limit := strings.Repeat("y", 257), strings.Repeat("z", 256)
	event := eventOf(t, &exampleRoute, exampleTx(), del(r, long, limit, brief)).Value
	keys, hashed := evidencetest.KeysOf(t, event)
	if keys["a"] != evidencetest.HashOf(long) || keys["b"] != limit || keys["c"] != evidencetest.HashOf(brief) || fmt.Sprint(hashed) != "[a c]" {
		t.Errorf("keys %v, hashed %v", keys, hashed)
	}
	if want := `"hashed":["a","c"],"sizes":[11000,257]`; !bytes.Contains(event, []byte(want)) {
		t.Errorf("the event does not say how long what it hashes is: %.3000s", event)
	}
	almost := strings.Repeat("x", 65_000)
	keys, hashed = evidencetest.KeysOf(t, eventOf(t, &exampleRoute, exampleTx(), del(r, almost, "1", "2")).Value)
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
			for schema, route := range map[string]*evidence.Route{
				"event": &exampleRoute, "event in SQL_ASCII": &raw, "event-debezium": routeOf(evidence.FormatDebezium),
				"event-cloudevents": routeOf(evidence.FormatCloudEvents),
			} {
				routed := eventOf(t, route, exampleTx(), del(table, values...))
				if n := sizeOf(routed); n > recordLimit {
					t.Errorf("%d values of %d bytes make a record of %d", long, length, n)
				}
				schema, _, _ = strings.Cut(schema, " ")
				if err := evidencetest.Schema(t, schema).Validate(evidencetest.ParseJSON(t, routed.Value)); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

func TestHashesDependOnTheValueAndTheKeyAlone(t *testing.T) {
	t.Parallel()
	tx, e := exampleTx(), evidence.Event{}
	long := strings.Repeat("k", 100_000)
	finding := evidence.Finding{Op: evidence.Delete, Cause: evidence.User}
	set := func(value string) { e.Set(tx, del(target, value), finding, nil, "public.sessions") }
	used := evidence.NewRouter(&exampleRoute, evidencetest.HashKey)
	set(long)
	first := describe(used.Route(&e))
	for _, other := range []string{"1", long + "2", strings.Repeat("3", 90_000)} {
		set(other)
		if describe(used.Route(&e)) == first {
			t.Errorf("%.1s… has the bytes of another row", other)
		}
	}
	set(long)
	if describe(used.Route(&e)) != first || describe(evidence.NewRouter(&exampleRoute, evidencetest.HashKey).Route(&e)) != first {
		t.Error("the same row has other bytes")
	}
	if describe(evidence.NewRouter(&exampleRoute, bytes.Repeat([]byte{8}, 32)).Route(&e)) == first {
		t.Error("another key gives the same hash")
	}
}
