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

// Partitions by the thousand may be emptied by one statement. Each record is an entry of the log's tree.
func TestATransactionWithManyTablesHasSeveralRecords(t *testing.T) {
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
	writer := evidence.NewLogWriter(&exampleRoute, evidencetest.HashKey, uuid.New(), nil)
	contents := evidence.NewTransactionContents(exampleTx(), account, evidence.Reconcile(account))
	last := &evidence.CoverageContent{At: exampleTx().CommitTime}
	entries := writer.WriteAll(append(contents, last), evidence.EndOf(exampleTx()))
	observed, relations, events, rows := map[string]bool{}, map[uint32]bool{}, uint64(0), int64(0)
	for i, entry := range entries {
		if len(entry.Value) > evidence.MaxRecord {
			t.Errorf("record %d has %d bytes", i, len(entry.Value))
		}
		if entry.Position.Seq != uint32(i) || entry.More != (i < len(entries)-1) {
			t.Fatalf("record %d is number %d, more: %t", i, entry.Position.Seq, entry.More)
		}
		record, err := evidence.ParseLogRecord(entry.Value)
		if err != nil {
			t.Fatal(err)
		}
		c, is := record.Content.(*evidence.TransactionContent)
		if !is {
			continue
		}
		if err := evidencetest.Schema(t, "log-transaction").Validate(evidencetest.ParseJSON(t, entry.Value)); err != nil {
			t.Error(err)
		}
		if c.Further != (i > 0) || c.Verdict != evidence.Mismatch || c.Claim == nil || c.Claimed.Deleted != 1 {
			t.Errorf("record %d does not say the same of the transaction", i)
		}
		for _, tally := range c.Observed {
			observed[fmt.Sprint(tally.OID, tally.Op)] = true
			events += tally.Events
		}
		for _, counted := range c.Claimed.ByRelation {
			relations[counted.OID] = true
			rows += counted.Rows
		}
	}
	if len(observed) != 6001 || events != 9001 {
		t.Errorf("%d tables and operations with %d events, want 6001 with 9001", len(observed), events)
	}
	if len(relations) != 40_001 || rows != 40_001 {
		t.Errorf("%d relations claimed, with %d rows", len(relations), rows)
	}
	if records := len(entries); records < 100 || entries[records-1].Kind != evidence.KindCoverage {
		t.Errorf("%d records, and the last is of kind %s", records, entries[len(entries)-1].Kind)
	}
}
