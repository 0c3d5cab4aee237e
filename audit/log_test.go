package audit_test

import (
	"bytes"
	"testing"
	"time"

	"lapse/audit"
	"lapse/replication"
	"lapse/schemas"
)

// accountOf classifies changes and returns what they come to.
func accountOf(changes ...*replication.Change) *audit.Account {
	var a *audit.Account
	classifyAll(&a, changes...)
	return a
}

func exampleLeaves() map[string]*audit.Leaf {
	s := audit.NewScribe(&exampleRoute)
	at := commitTime.Add(time.Minute)
	claim := exampleClaim()
	written := func(tx *replication.Tx, a *audit.Account) *audit.Leaf {
		return s.Transaction(tx, a, audit.Reconcile(a))
	}
	fromElsewhere := exampleTx()
	fromElsewhere.Origin = "upstream"
	return map[string]*audit.Leaf{
		"log-origin":   s.Origin(1, 0x19C2000, []schemas.TagKey{tagKey}, at),
		"log-route":    s.Routing(1, 0x19C2000, at),
		"log-coverage": s.Coverage(1, 0x19C2B00, at),
		"log-transaction": written(exampleTx(), accountOf(signed(claim), del(target, 1), del(target, 2),
			del(child, 1, 1), resultRow(claim, 2, 1))),
		"log-transaction-mismatch": written(exampleTx(), accountOf(signed(claim), del(target, 1), resultRow(claim, 2),
			del(stranger, 1))),
		"log-transaction-unclaimed": written(fromElsewhere, accountOf(del(target, 1), truncate(child))),
	}
}

func TestLogRecordsAreTheirGoldenFilesAndFitTheirSchemas(t *testing.T) {
	t.Parallel()
	for name, leaf := range exampleLeaves() {
		golden(t, "log-"+string(leaf.Kind), name, leaf.Value)
	}
}

func TestAnyLogRecordSaysWhereTheLogStands(t *testing.T) {
	t.Parallel()
	for name, leaf := range exampleLeaves() {
		end, err := audit.ParseLogEnd(leaf.Value)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if end.Kind != leaf.Kind || end.Reached != leaf.Reached || end.Timeline != leaf.Timeline ||
			end.Route != exampleRoute.Fingerprint() || end.RouteVersion != 1 ||
			end.SystemIdentifier != source.SystemIdentifier || end.DatabaseOID != source.DatabaseOID ||
			end.Database != source.Database {
			t.Errorf("%s: read back as %+v", name, end)
		}
	}
}

func TestALogRecordOfAnotherFormatIsRefused(t *testing.T) {
	t.Parallel()
	value := exampleLeaves()["log-coverage"].Value
	for _, test := range []struct{ old, new string }{
		{`"schema":1`, `"schema":2`},
		{`"reached":"0/19C2B00"`, `"reached":"nowhere"`},
		{`"system_identifier":"7381000000000000001"`, `"system_identifier":"x"`},
		{`{"kind"`, `["kind"`},
	} {
		if _, err := audit.ParseLogEnd(bytes.Replace(value, []byte(test.old), []byte(test.new), 1)); err == nil {
			t.Errorf("with %s for %s it is taken", test.new, test.old)
		}
	}
}

// Nothing of the key may be guessed from the log, and nothing of it is in there.
func TestKeysAreNotInTheLog(t *testing.T) {
	t.Parallel()
	for name, leaf := range exampleLeaves() {
		if bytes.Contains(leaf.Value, tagKey[:8]) || bytes.Contains(leaf.Value, []byte("0707070707")) {
			t.Errorf("%s has the tag key", name)
		}
	}
}
