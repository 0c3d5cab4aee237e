package audit_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/uuid"

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
	nonce := uuid.MustParse("0198f1d0-0000-7000-8000-0000000000aa")
	beat := exampleHeartbeat()
	former := *beat
	former.Nonce = beat.Former
	s.Knows(nonce, &former)
	at := commitTime.Add(time.Minute)
	place := func(lsn schemas.LSN) audit.Reach { return audit.Reach{History: 1, Timeline: 1, LSN: lsn} }
	claim := exampleClaim()
	written := func(tx *replication.Tx, a *audit.Account) *audit.Leaf {
		return s.Transaction(tx, a, audit.Reconcile(a))
	}
	fromElsewhere := exampleTx()
	fromElsewhere.Origin = "upstream"
	return map[string]*audit.Leaf{
		"log-origin":             s.Origin(place(0x19C2000), []schemas.Key{tagKey}, at),
		"log-route":              s.Routing(place(0x19C2000), at),
		"log-coverage":           s.Coverage(place(0x19C2B00), at),
		"log-coverage-heartbeat": s.Beaten(exampleTx(), beat),
		"log-gap":                s.Marked(exampleMarker(audit.Gap), place(0x19C3000), nil),
		"log-rewind":             s.Marked(exampleMarker(audit.Rewind), place(0x19C1000), nil),
		"log-transaction": written(exampleTx(), accountOf(signed(claim), del(target, 1), del(target, 2),
			del(child, 1, 1), resultRow(claim, 2, 1))),
		"log-transaction-mismatch": written(exampleTx(), accountOf(signed(claim), del(target, 1), resultRow(claim, 2),
			del(stranger, 1))),
		"log-transaction-unclaimed": written(fromElsewhere, accountOf(del(target, 1), truncate(child))),
	}
}

func exampleHeartbeat() *audit.Heartbeat {
	return &audit.Heartbeat{
		Nonce: uuid.MustParse("0198f1d0-0000-7000-8000-0000000000b2"), Former: uuid.MustParse("0198f1d0-0000-7000-8000-0000000000b1"),
		At: commitTime, History: 1, Timeline: 1, ServerStart: commitTime.Add(-time.Hour),
	}
}

func exampleMarker(op audit.Op) *audit.Marker {
	m := &audit.Marker{
		Op: op, Reason: audit.ReasonSlot, Time: commitTime,
		At:   replication.Position{History: 1, Timeline: 1, Commit: 0x19C2FFF},
		From: audit.Reach{History: 1, Timeline: 1, LSN: 0x19C2B00}, To: audit.Reach{History: 1, Timeline: 1, LSN: 0x19C3000},
	}
	if op == audit.Rewind {
		m.Reason, m.At = audit.ReasonAccepted, replication.Position{History: 2, Timeline: 1, Commit: 0x19C1000}
		m.From.LSN, m.To.LSN = 0x19C1000, 0x19C2B00
	}
	return m
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
		end, err := audit.ParseLogRecord(leaf.Value)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if end.Kind != leaf.Kind || end.Reach != leaf.Reach || end.Nonce == (uuid.UUID{}) || end.Beat == (uuid.UUID{}) ||
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
		if _, err := audit.ParseLogRecord(bytes.Replace(value, []byte(test.old), []byte(test.new), 1)); err == nil {
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
