package evidence_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"lapse/audit/evidence"
	"lapse/internal/evidencetest"
	"lapse/replication"
	"lapse/schemas"
)

// The tables of the catalog that say what is in force.
var (
	policyTable = relation(16501, "lapse", "policy", "id", "version", "name", "table_oid", "table_name", "columns", "spec", "made_at", "made_by",
		"reason", "entry", "former_entry", "trusted", "joined")
	stateTable = relation(16502, "lapse", "policy_state", "policy_id", "version", "state", "changed_at", "changed_by", "reason")
	gateTable  = relation(16503, "lapse", "gate", "policy_id", "name", "table_oid", "version", "state", "held_back", "hold_version", "arming_lsn", "soft")
	haltTable  = relation(16504, "lapse", "halt", "id", "halted", "at", "by", "reason", "alarm")
	holdTable  = relation(16505, "lapse", "hold", "id", "table_oid", "table_name", "columns", "keys", "digest", "matter", "reason", "placed_at", "placed_by", "placed_in")
	holdStates = relation(16506, "lapse", "hold_state", "id", "hold", "state", "enforced_until", "position", "changed_at", "changed_by", "reason",
		"table_oid", "table_name", "columns")
	snapshotTable = relation(16510, "lapse", "snapshot", "number", "snapshot", "step", "policy_id", "policy", "version", "at", "by", "seen", "cutoff",
		"due", "overdue", "held", "quarantined", "oldest_over", "not_counted")
	quarantineTable = relation(16508, "lapse", "quarantine_change", "number", "policy_id", "policy", "leaf", "name", "entered", "left_it", "changed_at", "changed_by")
	restatedTable   = relation(16509, "lapse", "restated", "number", "what", "columns", "at")
	holdTree        = relation(16507, "lapse", "hold_relation", "id", "hold", "relation", "name", "attached", "ended", "columns", "recorded_at")
)

const (
	exampleSpec = `{"key": [{"name": "id"}], "batch": 5000, "basis": "HGB §257", "every": "00:05:00", "floor": [{"of": "public.sessions", "least": "7 days", "table": "*", "reason": "backup"}], "owner": "orders team", "where": "state = 'closed' and customer <> 4711", "action": "delete", "events": {"values": "keys"}, "expire": {"type": "timestamptz", "after": "30 days", "column": "last_seen", "number": 2}, "evidence": "claimed", "latitude": "1 day", "triggers": "refuse"}`
	examplePlan = "2026-11-21 10:15:30.1+00"
)

func versionRow() *replication.Change {
	return insert(policyTable, row(1, 3, "sessions-30d", 16390, "public.sessions", "[]", exampleSpec, examplePlan, "alice", "OPS-1", "name: sessions-30d", nil, nil, "[]"))
}

func stateRow(state string) *replication.Change {
	return insert(stateTable, row(1, 3, state, examplePlan, "alice", "OPS-2"))
}

func gateRow(version int, state, holds string) []replication.Value {
	return row(1, "sessions-30d", 16390, version, state, nil, holds, nil, "f")
}

func changedRow(table *replication.Relation, former, next []replication.Value) *replication.Change {
	return &replication.Change{Op: replication.OpUpdate, Relation: table, Old: former, New: next}
}

func goneRow(table *replication.Relation, former []replication.Value) *replication.Change {
	return &replication.Change{Op: replication.OpDelete, Relation: table, Old: former}
}

func holdRow() *replication.Change {
	return insert(holdTable, row(7, 16390, "public.sessions", "[]", 2, `\x`+strings.Repeat("ab", 32), "LIT-2026-4", "claim of a customer", examplePlan, "counsel", "744"))
}

func holdStateRow(state, until string) *replication.Change {
	var ends any
	if until != "" {
		ends = until
	}
	return insert(holdStates, row(12, 7, state, ends, "0/19C2A00", examplePlan, "counsel", "claim of a customer", nil, nil, nil))
}

func snapshotRow(step string, rest ...any) *replication.Change {
	return insert(snapshotTable, append(row(5, "0198f1d0-0000-7000-8000-0000000000c1", step, 1, "sessions-30d", 3, examplePlan, "lapse"), row(rest...)...))
}

// catalogEntries are records of rows of the catalog.
func catalogEntries(write func(lsn schemas.LSN, seq uint32, c evidence.Content) *evidence.Entry) map[string]*evidence.Entry {
	all := map[string]*evidence.Entry{}
	for name, change := range map[string]*replication.Change{
		"log-policy-version":      versionRow(),
		"log-policy-state":        stateRow("paused"),
		"log-policy-gate":         changedRow(gateTable, gateRow(3, "observing", "5"), gateRow(3, "armed", "5")),
		"log-policy-halt":         insert(haltTable, row(4, "t", examplePlan, "bob", "OPS-3", "f")),
		"log-policy-restated":     insert(restatedTable, row(1, "policy", `{"id":"1","version":"3","name":"sessions-30d","table_oid":"16390","table_name":"public.sessions","spec":"{\"expire\": {\"after\": \"30 days\", \"column\": \"last_seen\"}}","made_at":"2026-11-21 10:15:30.1+00","made_by":"alice","reason":"OPS-1","state":"armed"}`, examplePlan)),
		"log-quarantine":          insert(quarantineTable, row(9, 1, "sessions-30d", 16390, "public.sessions", 1, 0, examplePlan, "lapse")),
		"log-quarantine-restated": insert(restatedTable, row(2, "quarantine", `{"policy_id":"1","policy":"sessions-30d","leaf":"16390","name":"public.sessions","rows":"3"}`, examplePlan)),
		"log-hold-restated":       insert(restatedTable, row(3, "hold", `{"id":"7","table_oid":"16390","table_name":"public.sessions","digest":"\\xabab","matter":"LIT-2026-4","reason":"claim of a customer","placed_at":"2026-11-21 10:15:30.1+00","placed_by":"counsel","state":"effective","position":"0/19C2A00"}`, examplePlan)),
		"log-hold":                holdRow(),
		"log-hold-effective":      holdStateRow("effective", ""),
		"log-hold-gone":           goneRow(holdStates, holdStateRow("releasing", "2026-11-22 00:00:00+00").New),
		"log-hold-relation":       insert(holdTree, row(3, 7, 16391, "public.sessions_2026_11", "t", "f", "[]", examplePlan)),
		"log-snapshot-begun":      snapshotRow("begun", nil, nil, nil, nil, nil, nil, nil, nil),
		"log-snapshot-taken":      snapshotRow("taken", "744:750:745", examplePlan, nil, nil, nil, nil, nil, nil),
		"log-snapshot-counted":    snapshotRow("counted", nil, nil, 120, 0, 2, 1, 43200, nil),
		"log-snapshot-notcounted": snapshotRow("counted", nil, nil, nil, nil, nil, nil, nil, "it takes longer than 2m0s"),
	} {
		_, outcome := assemble(assembler(evidence.Standing{}), change)
		all[name] = write(exampleTx().EndLSN, 0, outcome.Records[0])
	}
	return all
}

// saying are records in a few words.
func saying(records []evidence.Content) (all []string) {
	for _, record := range records {
		switch c := record.(type) {
		case *evidence.PolicyContent:
			text := c.Row + " " + c.Op
			if c.Is != nil {
				text += fmt.Sprintf(" is %s %d %s", c.Is.Policy, c.Is.Version, c.Is.State)
			}
			if c.Was != nil {
				text += fmt.Sprintf(" was %s %d %s", c.Was.Policy, c.Was.Version, c.Was.State)
			}
			if c.ByHand {
				text += " by hand"
			}
			all = append(all, text)
		case *evidence.HoldContent:
			text := "hold " + c.Row + " " + c.Op
			if c.Is != nil {
				text += fmt.Sprintf(" is %d %s", c.Is.Hold, c.Is.State)
			}
			if c.Was != nil {
				text += fmt.Sprintf(" was %d %s", c.Was.Hold, c.Was.State)
			}
			all = append(all, text)
		default:
			all = append(all, string(record.Kind()))
		}
	}
	return all
}

func TestWhatIsDoneToARowOfTheCatalogIsInTheLog(t *testing.T) {
	t.Parallel()
	armed := func() []replication.Value { return gateRow(3, "armed", "5") }
	observing := func() []replication.Value { return gateRow(3, "observing", "5") }
	for _, test := range []struct {
		name    string
		changes []*replication.Change
		want    []string
	}{
		{
			"apply makes a policy",
			[]*replication.Change{versionRow(), insert(gateTable, observing()), stateRow("observing")},
			[]string{"version insert is sessions-30d 3 ", "state insert is sessions-30d 3 observing"},
		},
		{"a person arms it", []*replication.Change{changedRow(gateTable, observing(), armed()), stateRow("armed")}, []string{"state insert is sessions-30d 3 armed"}},
		{"somebody arms it by hand", []*replication.Change{changedRow(gateTable, observing(), armed())}, []string{"gate update is sessions-30d 3 armed was sessions-30d 3 observing by hand"}},
		{"somebody arms it and says otherwise", []*replication.Change{changedRow(gateTable, observing(), armed()), stateRow("observing")}, []string{
			"gate update is sessions-30d 3 armed was sessions-30d 3 observing by hand", "state insert is sessions-30d 3 observing",
		}},
		{
			"another table is put in its place",
			[]*replication.Change{changedRow(gateTable, armed(), row(1, "sessions-30d", 16666, 3, "armed", nil, 5, nil, "f")), stateRow("armed")},
			[]string{"gate update is sessions-30d 3 armed was sessions-30d 3 armed by hand", "state insert is sessions-30d 3 armed"},
		},
		{"a hold comes into force for it", []*replication.Change{changedRow(gateTable, armed(), gateRow(3, "armed", "6"))}, nil},
		{"a version of it is held back", []*replication.Change{changedRow(gateTable, armed(), row(1, "sessions-30d", 16390, 3, "armed", 4, 5, nil, "f"))}, []string{
			"gate update is sessions-30d 3 armed was sessions-30d 3 armed",
		}},
		{"its gate is deleted", []*replication.Change{goneRow(gateTable, armed())}, []string{"gate delete was sessions-30d 3 armed by hand"}},
		{"a version is edited", []*replication.Change{changedRow(policyTable, versionRow().New, versionRow().New)}, []string{
			"version update is sessions-30d 3  was sessions-30d 3 ",
		}},
		{"all states are deleted", []*replication.Change{truncate(stateTable)}, []string{"state truncate"}},
		{"everything is stopped", []*replication.Change{insert(haltTable, row(4, "t", examplePlan, "bob", "OPS-3", "f"))}, []string{"halt insert is  0 "}},
		{"a hold is placed", []*replication.Change{holdRow(), holdStateRow("requested", ""), insert(holdTree, row(3, 7, 16390, "public.sessions", "f", "f", "[]", examplePlan))}, []string{
			"hold hold insert is 7 ", "hold state insert is 7 requested", "hold relation insert is 7 ",
		}},
		{"a hold's row is deleted", []*replication.Change{goneRow(holdTable, holdRow().New)}, []string{"hold hold delete was 7 "}},
		{"a user deletes in the same transaction", []*replication.Change{stateRow("paused"), del(target, 1)}, []string{"transaction", "state insert is  3 paused"}},
	} {
		events, outcome := assemble(assembler(evidence.Standing{}), test.changes...)
		if got := saying(outcome.Records); !slices.Equal(got, test.want) {
			t.Errorf("%s:\n got %q\nwant %q", test.name, got, test.want)
		}
		if want := len(test.changes) == 2 && test.changes[1].Relation == target; (len(events) == 1) != want {
			t.Errorf("%s: events %q", test.name, events)
		}
	}
}

// A policy's text may name people: nothing of a condition is in the log, and the same text has the same hash.
func TestAVersionsRecordHasNoConditionAndTheHashOfAll(t *testing.T) {
	t.Parallel()
	entry := exampleEntries()["log-policy-version"]
	for _, text := range []string{"4711", "customer", "closed", "backup", "name: sessions"} {
		if bytes.Contains(entry.Value, []byte(text)) {
			t.Errorf("the record has %q: %s", text, entry.Value)
		}
	}
	record, err := evidence.ParseLogRecord(entry.Value)
	if err != nil {
		t.Fatal(err)
	}
	is := record.Content.(*evidence.PolicyContent).Is
	if want := evidencetest.HashOf(exampleSpec); is.Definition != want {
		t.Errorf("definition %q, want %q", is.Definition, want)
	}
	if !is.Terms.Where || is.Terms.Expire.After != "30 days" || is.Terms.Basis != "HGB §257" || len(is.Terms.Floors) != 1 {
		t.Errorf("terms %+v", is.Terms)
	}
}

// A large text that an update leaves alone is not sent again.
func TestAnUnchangedValueIsThatOfTheFormerRow(t *testing.T) {
	t.Parallel()
	next := versionRow().New
	next[6] = replication.Value{Kind: replication.Unchanged}
	_, outcome := assemble(assembler(evidence.Standing{}), changedRow(policyTable, versionRow().New, next))
	if c := outcome.Records[0].(*evidence.PolicyContent); c.Is.Terms == nil || c.Is.Terms.Every != "00:05:00" {
		t.Errorf("is %+v", c.Is)
	}
	next = row(1, 4, "sessions-31d", 16391, "public.other", "[]", exampleSpec, examplePlan, "bob", "OPS-9")
	next[2] = replication.Value{Kind: replication.Unchanged} // only this one: the name is read first
	_, outcome = assemble(assembler(evidence.Standing{}), changedRow(policyTable, versionRow().New, next))
	if is := outcome.Records[0].(*evidence.PolicyContent).Is; is.Policy != "sessions-30d" || is.Version != 4 || is.By != "bob" || is.Reason != "OPS-9" {
		t.Errorf("is %+v", is)
	}
}

// Somebody who may write the catalog must not stop the audit with it.
func TestManyRowsOfOneTransactionAreCounted(t *testing.T) {
	t.Parallel()
	changes := make([]*replication.Change, 10_003)
	for i := range changes {
		changes[i] = stateRow("armed")
	}
	_, outcome := assemble(assembler(evidence.Standing{}), changes...)
	last := outcome.Records[len(outcome.Records)-1].(*evidence.PolicyContent)
	if len(outcome.Records) != 10_001 || last.Others != 3 {
		t.Errorf("%d records, and %d others", len(outcome.Records), last.Others)
	}
}

func TestARowThatCannotBeReadStopsNothing(t *testing.T) {
	t.Parallel()
	for _, table := range []*replication.Relation{policyTable, stateTable, gateTable, haltTable, holdTable, holdStates, holdTree, quarantineTable, snapshotTable} {
		values := make([]any, len(table.Columns)-1)
		for i := range values {
			values[i] = "{\x00 no"
		}
		_, outcome := assemble(assembler(evidence.Standing{}), insert(table, row(values...)))
		if len(outcome.Records) != 1 {
			t.Errorf("%s: records %q", table.Name, saying(outcome.Records))
		}
	}
}

// A stolen login of the executor may count what it likes: how late the oldest row is can only be a step.
func TestOnlyAStepIsALateness(t *testing.T) {
	t.Parallel()
	for over, want := range map[any]bool{0: true, 43200: true, 31536000: true, 30: false, -5: false, 43201: false, "0x": false, nil: false} {
		_, outcome := assemble(assembler(evidence.Standing{}), snapshotRow("counted", nil, nil, 120, 5, 2, 1, over, nil))
		s, is := outcome.Records[0].(*evidence.SnapshotContent)
		if !is || s.Counted == nil || (s.Counted.OldestOver != nil) != want {
			t.Errorf("%v: %+v", over, outcome.Records[0])
		}
	}
}
