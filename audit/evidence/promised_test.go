package evidence_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"lapse/audit/evidence"
	"lapse/internal/evidencetest"
	"lapse/replication"
	"lapse/schemas"
)

// promising makes a batch row that says what the policy wants told and judged; "" is NULL.
func promising(batch *replication.Change, told, due string) *replication.Change {
	described := *batch.Relation
	described.Columns = append(append([]replication.Column{}, described.Columns...),
		replication.Column{Name: "told", TypeOID: 3802, TypeMod: -1}, replication.Column{Name: "due", TypeOID: 3802, TypeMod: -1})
	batch.Relation = &described
	for _, text := range []string{told, due} {
		if text == "" {
			batch.New = append(batch.New, row(nil)...)
		} else {
			batch.New = append(batch.New, row(text)...)
		}
	}
	return batch
}

// wide is the target with an identity of more than its key.
var wide = func() *replication.Relation {
	r := relation(target.OID, "public", "sessions", "id*", "last_seen*", "Plan*", "note", "big*", "price*", "raw*", "tags*", "mood*", "pair*", "ends*")
	for i, oid := range []uint32{20, 1184, 25, 25, 20, 1700, 17, 1009, 0, 0, 1114} {
		r.Columns[i].TypeOID = oid
	}
	r.Columns[8].TypeOID, r.Columns[8].Type = 16700, replication.TypeName{Schema: "public", Name: "mood"}
	r.Columns[9].TypeOID, r.Columns[9].Type = 16710, replication.TypeName{Schema: "public", Name: "pair"}
	return r
}()

func wideRow(lastSeen any) *replication.Change {
	return del(wide, 42, lastSeen, `free "trial"`, "9007199254740993", "12345678901234567890.50", `\x00ff`, `{a,"b c",NULL}`, "glad", `(1,"x,y")`, "0044-03-15 12:00:00.5 BC")
}

const (
	toldWide = `["Plan", "big", "price", "raw", "tags", "mood", "pair", "ends"]`
	dueWide  = `{"as": "timestamptz", "after": [{"days": 30}], "column": "last_seen"}`
	longAgo  = "2026-10-01 08:00:00+00"
	lately   = "2026-11-20 08:00:00+00"
)

func TestAnEventHasTheColumnsThatThePolicyListsBesideItsKey(t *testing.T) {
	t.Parallel()
	told := map[string]string{
		evidence.FormatSpanner:     `"value_capture_type":"COLUMNS","mods":[{"keys":{"id":"42","last_seen":"` + longAgo + `"},"old_values":{"Plan":"free \"trial\"","big":"9007199254740993","price":"12345678901234567890.50","raw":"\\x00ff","tags":"{a,\"b c\",NULL}","mood":"glad","pair":"(1,\"x,y\")","ends":"0044-03-15 12:00:00.5 BC"},"new_values":{}}]`,
		evidence.FormatDebezium:    `{"before":{"id":42,"last_seen":"2026-10-01T08:00:00.000000Z","Plan":"free \"trial\"","big":9007199254740993,"price":"12345678901234567890.50","raw":"AP8=","tags":["a","b c",null],"mood":"glad","pair":"(1,\"x,y\")","ends":-63517780799500000},"after":null`,
		evidence.FormatCloudEvents: `"data":{"event_id":`,
	}
	for _, format := range allFormats {
		batch := promising(signed(exampleClaim()), toldWide, "")
		routed := eventOf(t, routeOf(format), exampleTx(), batch, wideRow(longAgo))
		if !bytes.Contains(routed.Value, []byte(told[format])) {
			t.Errorf("%s: %s", format, routed.Value)
		}
		if bytes.Contains(routed.Key, []byte("Plan")) || bytes.Contains(routed.Value, []byte(`"due"`)) || bytes.Contains(routed.Value, []byte(`"note"`)) {
			t.Errorf("%s: key %s, value %s", format, routed.Key, routed.Value)
		}
	}
}

func TestWhoElseDeletesIsToldByAllOfTheIdentity(t *testing.T) {
	t.Parallel()
	claim := exampleClaim()
	along := relation(child.OID, "public", "session_notes", "session_id*", "note_no*", "Plan*", "last_seen*")
	note := func() *replication.Change { return del(along, 1, 1, "x", lately) }
	promise := func(batch *replication.Change) *replication.Change { return promising(batch, toldWide, dueWide) }
	for _, test := range []struct {
		name    string
		changes []*replication.Change
	}{
		{"a user", []*replication.Change{wideRow(longAgo)}},
		{"a batch that does not verify", []*replication.Change{promise(batchRow(claim, nil)), wideRow(longAgo)}},
		{"after the result", []*replication.Change{promise(signed(claim)), resultRow(claim), wideRow(longAgo)}},
		{"what a cascade deletes", []*replication.Change{promise(signed(claim)), note()}},
		{"a batch of a former catalog", []*replication.Change{signed(claim), wideRow(longAgo)}},
		{"a batch that promises nothing", []*replication.Change{promising(signed(claim), "", ""), wideRow(longAgo)}},
		{"names that cannot be read", []*replication.Change{promising(signed(claim), `{"Plan": 1}`, ""), wideRow(longAgo)}},
		{"every column of the identity", []*replication.Change{promising(signed(claim), strings.Replace(toldWide, "[", `["id", "last_seen", `, 1), ""), wideRow(longAgo)}},
	} {
		routed := eventOf(t, &exampleRoute, exampleTx(), test.changes...)
		if !bytes.Contains(routed.Key, []byte(`"Plan"`)) || !bytes.Contains(routed.Value, []byte(`"old_values":{}`)) ||
			!bytes.Contains(routed.Value, []byte(`"KEYS"`)) || bytes.Contains(routed.Value, []byte(`"due"`)) {
			t.Errorf("%s: key %s, event %s", test.name, routed.Key, routed.Value)
		}
	}
}

func TestLongValuesAreHashedAsLongKeysAre(t *testing.T) {
	t.Parallel()
	r := relation(target.OID, "public", "sessions", "id*", "note*", "short*")
	long := strings.Repeat("ä", maxKeys)
	for _, format := range allFormats {
		routed := eventOf(t, routeOf(format), exampleTx(), promising(signed(exampleClaim()), `["note", "short"]`, ""), del(r, 42, long, "s"))
		want := `"note":"` + evidencetest.HashOf(long) + `","short":"s"}`
		if !bytes.Contains(routed.Value, []byte(want)) || !bytes.Contains(routed.Value, []byte(`"hashed":["note"],"sizes":[131072]`)) {
			t.Errorf("%s: %.2000s", format, routed.Value)
		}
		if string(routed.Key) != `{"id":"42"}` {
			t.Errorf("%s: key %s", format, routed.Key)
		}
	}
}

const maxKeys = 64 << 10

func TestARowIsJudgedByTheValueThatTheLogHas(t *testing.T) {
	t.Parallel()
	claim := exampleClaim()
	unsent := wideRow(longAgo)
	unsent.Relation = relation(target.OID, "public", "sessions", "id*", "last_seen")
	unsent.Old = del(unsent.Relation, 42).Old
	for _, test := range []struct {
		name   string
		change *replication.Change
		due    string
		member string
		counts [4]uint64 // judged, due, not due, unknown
		want   evidence.Verdict
	}{
		{"due", wideRow(longAgo), dueWide, `"due":true`, [4]uint64{1, 1, 0, 0}, evidence.Match},
		{"not due", wideRow(lately), dueWide, `"due":false`, [4]uint64{1, 0, 1, 0}, evidence.Mismatch},
		{"not in the log", unsent, dueWide, `"due":null`, [4]uint64{1, 0, 0, 1}, evidence.Mismatch},
		{"not to be read", wideRow("yesterday"), dueWide, `"due":null`, [4]uint64{1, 0, 0, 1}, evidence.Mismatch},
		{"NULL", wideRow(nil), dueWide, `"due":null`, [4]uint64{1, 0, 0, 1}, evidence.Mismatch},
		{"by a word that a later version writes", wideRow(longAgo), strings.Replace(dueWide, "timestamptz", "stardate", 1), `"due":null`, [4]uint64{1, 0, 0, 1}, evidence.Mismatch},
		{"no promise", wideRow(lately), "", `"value_capture_type":"KEYS"`, [4]uint64{}, evidence.Match},
	} {
		batch := func() *replication.Change { return promising(signed(claim), "", test.due) }
		for _, format := range allFormats {
			routed := eventOf(t, routeOf(format), exampleTx(), batch(), test.change)
			if format != evidence.FormatDebezium && !bytes.Contains(routed.Value, []byte(test.member)) || (test.due == "") == bytes.Contains(routed.Value, []byte(`"due":`)) {
				t.Errorf("%s: %s: %s", format, test.name, routed.Value)
			}
		}
		a := evidence.NewAssembler(source, []schemas.Key{evidencetest.TagKey}, evidence.Standing{})
		_, outcome := assemble(a, batch(), test.change, resultRow(claim, 1))
		tally := outcome.Account.Tallies[0]
		got := [4]uint64{tally.Judged, tally.Due, tally.NotDue, tally.Judged - tally.Due - tally.NotDue}
		if got != test.counts || outcome.Verdict != test.want {
			t.Errorf("%s: counts %v, verdict %s; want %v, %s", test.name, got, outcome.Verdict, test.counts, test.want)
		}
	}
}

func TestWhenARowIsDueIsComputedAsPostgreSQLDoes(t *testing.T) {
	t.Parallel()
	month := schemas.Period{Months: 1}
	for _, test := range []struct {
		as     schemas.DueAs
		text   string
		after  []schemas.Period
		cutoff string
		want   evidence.Judgement
	}{
		{schemas.DueInstant, "2026-01-31 00:00:00+00", []schemas.Period{month}, "2026-02-28T00:00:00Z", evidence.IsDue},
		{schemas.DueInstant, "2026-01-31 00:00:00.000001+00", []schemas.Period{month}, "2026-02-28T00:00:00Z", evidence.IsNotDue},
		{schemas.DueInstant, "2024-02-29 12:00:00+00", []schemas.Period{{Months: 12}}, "2025-02-28T12:00:00Z", evidence.IsDue},
		{schemas.DueInstant, "2026-01-31 00:00:00+00", []schemas.Period{month, month}, "2026-03-28T00:00:00Z", evidence.IsDue},
		{schemas.DueInstant, "2026-01-31 00:00:00+00", []schemas.Period{{Months: 2}}, "2026-03-28T00:00:00Z", evidence.IsNotDue},
		{schemas.DueDate, "2026-01-01", []schemas.Period{{Days: 1, Microseconds: 1}}, "2026-01-02T00:00:00.000001Z", evidence.IsDue},
		{schemas.DueDate, "4713-01-01 BC", nil, "2026-01-02T00:00:00Z", evidence.IsDue},
		{schemas.DueDate, "4714-12-31 BC", nil, "2026-01-02T00:00:00Z", evidence.IsNotDue},
		{schemas.DueTimestamp, "-infinity", nil, "2026-01-02T00:00:00Z", evidence.IsNotDue},
		{schemas.DueTimestamp, "infinity", nil, "2026-01-02T00:00:00Z", evidence.IsNotDue},
		{schemas.DueTimestamp, "294276-12-31 23:59:59.999999", []schemas.Period{{Months: 1 << 30}}, "2026-01-02T00:00:00Z", evidence.IsNotDue},
		{schemas.DueSeconds, "-1", nil, "1969-12-31T23:59:59Z", evidence.IsDue},
		{schemas.DueMilliseconds, "-1", nil, "1969-12-31T23:59:59Z", evidence.IsDue},
		{schemas.DueMilliseconds, "-1001", nil, "1969-12-31T23:59:58Z", evidence.IsDue},
		{schemas.DueMilliseconds, "1999", nil, "1970-01-01T00:00:01Z", evidence.IsDue},
		{schemas.DueSeconds, "9223372036854775807", nil, "2026-01-02T00:00:00Z", evidence.IsNotDue},
		{schemas.DueSeconds, "-9223372036854775808", nil, "2026-01-02T00:00:00Z", evidence.IsNotDue},
		{schemas.DueMilliseconds, "-9223372036854775808", nil, "2026-01-02T00:00:00Z", evidence.IsNotDue},
		{schemas.DueSeconds, "-210863520000", nil, "2026-01-02T00:00:00Z", evidence.IsDue},
		{schemas.DueSeconds, "-210863520001", nil, "2026-01-02T00:00:00Z", evidence.IsNotDue},
		{schemas.DueMilliseconds, "-210863520000001", nil, "2026-01-02T00:00:00Z", evidence.IsNotDue},
		{schemas.DueSeconds, "1.5", nil, "2026-01-02T00:00:00Z", evidence.CannotTell},
		{schemas.DueSeconds, "", nil, "2026-01-02T00:00:00Z", evidence.CannotTell},
		{schemas.DueInstant, "2026-01-01 00:00:00", nil, "2026-01-02T00:00:00Z", evidence.CannotTell},
		{schemas.DueDate, "2026-13-01", nil, "2026-01-02T00:00:00Z", evidence.CannotTell},
		{schemas.DueDate, "", nil, "2026-01-02T00:00:00Z", evidence.CannotTell},
		{"", "2026-01-01", nil, "2026-01-02T00:00:00Z", evidence.CannotTell},
	} {
		cutoff, err := time.Parse(time.RFC3339Nano, test.cutoff)
		if err != nil {
			t.Fatal(err)
		}
		if got := evidence.Judge(&schemas.Due{Column: "c", As: test.as, After: test.after}, []byte(test.text), cutoff); got != test.want {
			t.Errorf("%s %s + %v at %s: %d, want %d", test.as, test.text, test.after, test.cutoff, got, test.want)
		}
	}
}
