package evidence_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"lapse/audit/evidence"
	"lapse/internal/evidencetest"
	"lapse/replication"
	"lapse/schemas"
)

// hashedly makes a batch row that says that its events have hashes.
func hashedly(batch *replication.Change, is string) *replication.Change {
	described := *batch.Relation
	described.Columns = append(append([]replication.Column{}, described.Columns...), replication.Column{Name: "hashed", TypeOID: 16, TypeMod: -1})
	batch.Relation, batch.New = &described, append(batch.New, row(is)...)
	return batch
}

// routedAll is what each event of a transaction is routed as, by one router.
func routedAll(route *evidence.Route, changes ...*replication.Change) (keys []string, values [][]byte) {
	a := evidence.NewAssembler(route.Source, []schemas.Key{evidencetest.TagKey}, evidence.Standing{})
	a.Begin(exampleTx())
	router := evidence.NewRouter(route, evidencetest.HashKey)
	for i, change := range changes {
		change.Ordinal = uint32(i)
		a.Change(change)
		for e := a.Next(); e != nil; e = a.Next() {
			routed := router.Route(e)
			keys, values = append(keys, string(routed.Key)), append(values, bytes.Clone(routed.Value))
		}
	}
	return keys, values
}

func TestEventsOfABatchThatHidesItsKeysHaveHashesAndNoOthersDo(t *testing.T) {
	t.Parallel()
	claim := exampleClaim()
	other := numbered(relation(16900, "public", "other", "id*"))
	is := func(value string) string { return `"` + evidencetest.HashOf(value) + `"` }
	fortyTwo, one := is("42"), is("1")
	for _, test := range []struct {
		name    string
		changes []*replication.Change
		want    []string
	}{
		{"rows of the target", []*replication.Change{hashedly(signed(claim), "t"), del(target, 42), del(target, 1)}, []string{`{"id":` + fortyTwo + `}`, `{"id":` + one + `}`}},
		{"what a cascade deletes", []*replication.Change{hashedly(signed(claim), "t"), del(child, 42, 1)}, []string{`{"session_id":` + fortyTwo + `,"note_no":` + one + `}`}},
		{"NULL", []*replication.Change{hashedly(signed(claim), "t"), del(child, 42, nil)}, []string{`{"session_id":` + fortyTwo + `,"note_no":null}`}},
		{"what is set", []*replication.Change{hashedly(softly(signed(softClaim()), "t"), "t"), set(target, 42, "x")}, []string{`{"id":` + fortyTwo + `}`}},
		{"what a trigger deletes elsewhere", []*replication.Change{hashedly(signed(claim), "t"), del(other, 42), del(target, 1)}, []string{`{"id":"42"}`, `{"id":` + one + `}`}},
		{"a batch with keys", []*replication.Change{hashedly(signed(claim), "f"), del(target, 42)}, []string{`{"id":"42"}`}},
		{"a batch that does not verify", []*replication.Change{hashedly(batchRow(claim, nil), "t"), del(target, 42)}, []string{`{"id":"42"}`}},
		{"after the result", []*replication.Change{hashedly(signed(claim), "t"), resultRow(claim, 0), del(target, 42)}, []string{`{"id":"42"}`}},
		{"a truncate", []*replication.Change{hashedly(signed(claim), "t"), truncate(target)}, []string{`{}`}},
	} {
		for _, format := range allFormats {
			keys, values := routedAll(routeOf(format), test.changes...)
			schema := map[string]string{evidence.FormatSpanner: "event"}[format]
			if schema == "" {
				schema = "event-" + format
			}
			for i := range keys {
				want := test.want[i]
				if format == evidence.FormatDebezium {
					want = strings.Replace(want, `"42"`, `42`, 1) // a bigint
				}
				if keys[i] != want {
					t.Errorf("%s: %s: key %s, want %s", format, test.name, keys[i], want)
				}
				if !bytes.Contains(values[i], []byte(want)) && want != "{}" {
					t.Errorf("%s: %s: event %s", format, test.name, values[i])
				}
				if hides := strings.Contains(want, "hmac"); hides != bytes.Contains(values[i], []byte(`"hashed":[`)) {
					t.Errorf("%s: %s: the event does not say which columns are hashes: %s", format, test.name, values[i])
				}
				if bytes.Contains(values[i], []byte(`"sizes"`)) {
					t.Errorf("%s: %s: the event says how long a value is that it must not tell: %s", format, test.name, values[i])
				}
				if strings.Contains(want, "null") && !bytes.Contains(values[i], []byte(`"hashed":["session_id"]`)) {
					t.Errorf("%s: %s: NULL is called a hash: %s", format, test.name, values[i])
				}
				if err := evidencetest.Schema(t, schema).Validate(evidencetest.ParseJSON(t, values[i])); err != nil {
					t.Errorf("%s: %s: %v", format, test.name, err)
				}
			}
			if len(keys) != len(test.want) {
				t.Errorf("%s: %s: %d events", format, test.name, len(keys))
			}
		}
	}
}

func TestARowWhoseKeysAreHiddenStaysInItsPartition(t *testing.T) {
	t.Parallel()
	seen := map[int32]bool{}
	for id := range 50 {
		hidden := func() *evidence.Routed {
			return eventOf(t, &exampleRoute, exampleTx(), hashedly(signed(exampleClaim()), "t"), del(target, id))
		}
		first, second := hidden(), hidden()
		if first.Partitions[0] != second.Partitions[0] {
			t.Errorf("row %d is in two partitions", id)
		}
		seen[first.Partitions[0]] = true
		for _, part := range [][]byte{first.Key, first.Value} {
			if bytes.Contains(part, fmt.Appendf(nil, `"id":"%d"`, id)) {
				t.Errorf("row %d is named: %s", id, part)
			}
		}
	}
	if len(seen) != 6 {
		t.Errorf("50 rows are in %d of 6 partitions", len(seen))
	}
}
