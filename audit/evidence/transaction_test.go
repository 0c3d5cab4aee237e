package evidence_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"lapse/audit/evidence"
	"lapse/internal/evidencetest"
	"lapse/replication"
)

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
	entry := evidence.NewLogWriter(&exampleRoute, evidencetest.HashKey, uuid.New(), nil).Write(evidence.NewTransactionContent(exampleTx(), account, evidence.Reconcile(account)), evidence.LogPosition{Reach: evidence.EndOf(exampleTx())}, false)
	if len(entry.Value) > 600<<10 {
		t.Errorf("the record is of %d bytes", len(entry.Value))
	}
	if err := evidencetest.Schema(t, "log-transaction").Validate(evidencetest.ParseJSON(t, entry.Value)); err != nil {
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
	if err := json.Unmarshal(entry.Value, &record); err != nil {
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
