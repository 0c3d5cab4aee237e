package evidence_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"lapse/audit/evidence"
	"lapse/replication"
	"lapse/schemas"
)

func TestEventsSortByTheirHeadersAsTheDatabaseWroteThem(t *testing.T) {
	t.Parallel()
	at := func(history, timeline, lsn, seq string) replication.Position {
		t.Helper()
		position, err := evidence.EventPosition(&schemas.Record{Headers: []schemas.Header{
			{Key: evidence.HeaderLSN, Value: []byte(lsn)},
			{Key: evidence.HeaderSeq, Value: []byte(seq)},
			{Key: evidence.HeaderSystem, Value: []byte("1")},
			{Key: evidence.HeaderDatabase, Value: []byte("2")},
			{Key: evidence.HeaderHistory, Value: []byte(history)},
			{Key: evidence.HeaderTimeline, Value: []byte(timeline)},
			{Key: evidence.HeaderSchema, Value: []byte("1")},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return position
	}
	sorted := []replication.Position{
		at("1", "1", "00000000019C2A40", "00000000"),
		at("1", "1", "00000000019C2A40", "0000000A"),
		at("1", "1", "00000001019C2A40", "00000000"),
		at("1", "2", "00000000019C2A40", "00000000"),
		at("1", "10", "0000000000000001", "00000000"),
		at("2", "1", "0000000000000001", "00000000"),
		at("10", "1", "0000000000000001", "00000000"),
	}
	for i := range sorted {
		for k := range sorted {
			if got := sorted[i].Compare(sorted[k]); got != cmp.Compare(i, k) {
				t.Errorf("%v compared with %v: %d", sorted[i], sorted[k], got)
			}
		}
	}
}

// Whatever is routed says where it is.
func TestAnEventsPositionIsReadBackFromItsHeaders(t *testing.T) {
	t.Parallel()
	for name, routed := range exampleEvents(t) {
		if name == "event-gap" || name == "event-rewind" {
			continue // they are at positions of their own
		}
		rec := schemas.Record{Headers: routed.Headers}
		position, err := evidence.EventPosition(&rec)
		if tx := exampleTx(); err != nil || position != tx.Position(position.Ordinal) || !source.Of(&rec) {
			t.Errorf("%s: read as %s (%v)", name, position, err)
		}
	}
	for _, op := range []evidence.Op{evidence.Gap, evidence.Rewind} {
		marker := exampleMarker(op)
		rec := schemas.Record{Headers: markerOf(&exampleRoute, marker).Headers}
		if position, err := evidence.EventPosition(&rec); err != nil || position != marker.At {
			t.Errorf("%v: read as %s (%v), want %s", op, position, err, marker.At)
		}
	}
}

func TestWhatIsNoEventHasNoPosition(t *testing.T) {
	t.Parallel()
	whole := exampleEvents(t)["event-user"].Headers
	for i := range whole {
		without := schemas.Record{Headers: slices.Delete(slices.Clone(whole), i, i+1)}
		broken := schemas.Record{Headers: slices.Clone(whole)}
		broken.Headers[i].Value = []byte("x")
		_, err1 := evidence.EventPosition(&without)
		_, err2 := evidence.EventPosition(&broken)
		placed := slices.Contains([]string{
			evidence.HeaderLSN, evidence.HeaderSeq, evidence.HeaderSystem, evidence.HeaderDatabase, evidence.HeaderHistory,
			evidence.HeaderTimeline, evidence.HeaderSchema,
		}, whole[i].Key)
		if errors.Is(err1, evidence.ErrNoEvent) != placed {
			t.Errorf("without %s: %v", whole[i].Key, err1)
		}
		if named := whole[i].Key == evidence.HeaderSystem || whole[i].Key == evidence.HeaderDatabase; named {
			if source.Of(&broken) {
				t.Errorf("with another %s it is of this database", whole[i].Key)
			}
		} else if errors.Is(err2, evidence.ErrNoEvent) != placed {
			t.Errorf("with %s broken: %v", whole[i].Key, err2)
		}
	}
}

// Names are in the database's encoding, and a header's reader takes them for UTF-8.
func TestHeadersAreUTF8InAnyDatabase(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ encoding, name, want string }{
		{"UTF8", "café", `public."café"`},
		{"LATIN1", "caf\xe9", "public.\"caf\uefe9\""},
		{"LATIN1", "caf\xc3\xa9", `public."café"`}, // two characters there; the way back is the same bytes
		{"SQL_ASCII", "\uefe9", "public.\"\uefee\uefbf\uefa9\""},
	} {
		route := *routeOf(evidence.FormatSpanner)
		route.Source.Encoding = test.encoding
		routed := eventOf(t, &route, exampleTx(), del(relation(16700, "public", test.name, "id*"), 1))
		var e struct {
			Table string `json:"table_name"`
		}
		if err := json.Unmarshal(routed.Value, &e); err != nil {
			t.Fatal(err)
		}
		for _, h := range routed.Headers {
			if h.Key == evidence.HeaderTable && (string(h.Value) != test.want || e.Table != test.want) {
				t.Errorf("%q in %s: the header is %q and the value's name %q, want %q", test.name, test.encoding, h.Value, e.Table, test.want)
			}
		}
	}
}

func TestHexSortsAsPositionsDo(t *testing.T) {
	t.Parallel()
	hex := func(n uint64) string { return string(evidence.AppendHex(nil, n, 16)) }
	if got := hex(0x19C2A40); got != "00000000019C2A40" {
		t.Errorf("Hex: %s", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Uint64().Draw(t, "a"), rapid.Uint64().Draw(t, "b")
		if (a < b) != (hex(a) < hex(b)) {
			t.Fatalf("%s and %s", hex(a), hex(b))
		}
	})
}
