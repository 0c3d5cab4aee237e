package evidence_test

import (
	"bytes"
	"maps"
	"testing"
	"time"

	"github.com/google/uuid"

	"lapse/audit/evidence"
	"lapse/internal/evidencetest"
	"lapse/replication"
	"lapse/schemas"
)

// accountOf classifies changes and returns what they come to.
func accountOf(changes ...*replication.Change) *evidence.Account {
	var a *evidence.Account
	classifyAll(&a, changes...)
	return a
}

// judgedAccount has a batch of three rows: one was not due, and of one it is unknown.
func judgedAccount() *evidence.Account {
	claim := exampleClaim()
	_, outcome := assemble(evidence.NewAssembler(source, []schemas.Key{evidencetest.TagKey}, evidence.Standing{}),
		promising(signed(claim), "", dueWide), wideRow(longAgo), wideRow(lately), wideRow(nil), resultRow(claim, 3))
	return outcome.Account
}

func exampleEntries() map[string]*evidence.Entry {
	beat := exampleHeartbeat()
	former := *beat
	former.Nonce = beat.Former
	nonce := uuid.MustParse("0198f1d0-0000-7000-8000-0000000000aa")
	at := commitTime.Add(time.Minute)
	writer := evidence.NewLogWriter(&exampleRoute, evidencetest.HashKey, nonce, &former)
	write := func(lsn schemas.LSN, seq uint32, c evidence.Content) *evidence.Entry {
		position := evidence.LogPosition{Reach: evidence.Reach{History: 1, Timeline: 1, LSN: lsn}, Seq: seq}
		return writer.Write(c, position, false)
	}
	claim := exampleClaim()
	written := func(tx *replication.Tx, a *evidence.Account) *evidence.Entry {
		c := evidence.NewTransactionContent(tx, a, evidence.Reconcile(a))
		for i := range a.Tallies {
			if c.Rows == nil {
				c.Rows = &evidence.RowsRoot{Epoch: schemas.EpochOf(tx.CommitTime), First: 1, Root: bytes.Repeat([]byte{0xAB}, 32)}
			}
			c.Rows.Count += a.Tallies[i].Events
		}
		return write(tx.EndLSN, 0, c)
	}
	marked := func(lsn schemas.LSN, op evidence.Op) *evidence.Entry {
		return write(lsn, 0, &evidence.MarkerContent{Marker: exampleMarker(op), Ancestry: exampleAncestry})
	}
	fromElsewhere := exampleTx()
	fromElsewhere.Origin = "upstream"
	entries := map[string]*evidence.Entry{
		"log-origin": write(0x19C2000, 0, &evidence.OriginContent{
			Slot: source.Slot, Consistent: 0x19C2000, Keys: []string{schemas.Fingerprint(evidencetest.TagKey)}, At: at,
			HashKey: exampleRoute.HashKey, PublicKey: exampleRoute.PublicKey, RowsKeys: exampleRoute.RowsKeys[1:],
		}),
		"log-route":    write(0x19C2000, 1, &evidence.RouteContent{Route: &exampleRoute, At: at}),
		"log-coverage": write(0x19C2B00, 0, &evidence.CoverageContent{At: at, Ancestry: exampleAncestry}),
		"log-coverage-heartbeat": write(exampleTx().EndLSN, 0, &evidence.CoverageContent{
			At: commitTime, Heartbeat: beat, Ancestry: exampleAncestry,
		}),
		"log-coverage-tables": write(exampleTx().EndLSN, 1, exampleTables()),
		"log-coverage-due":    write(exampleTx().EndLSN, 1, dueTables()),
		"log-gap":             marked(0x19C3000, evidence.Gap),
		"log-gap-first": writer.Write(&evidence.MarkerContent{
			Marker: exampleMarker(evidence.Gap), Ancestry: exampleAncestry,
		}, evidence.LogPosition{Reach: evidence.Reach{History: 1, Timeline: 1, LSN: 0x19C3000}, Seq: 3}, true),
		"log-rewind": marked(0x19C1000, evidence.Rewind),
		"log-transaction": written(exampleTx(), accountOf(signed(claim), del(target, 1), del(target, 2),
			del(child, 1, 1), resultRow(claim, 2, 1))),
		"log-transaction-due":   written(exampleTx(), judgedAccount()),
		"log-transaction-users": written(exampleTx(), usersAccount()),
		"log-transaction-mismatch": written(exampleTx(), accountOf(signed(claim), del(target, 1), resultRow(claim, 2),
			del(stranger, 1))),
		"log-transaction-drop":      written(exampleTx(), accountOf(dropped(claim))),
		"log-drop":                  write(exampleTx().EndLSN, 1, evidence.NewDropContent(exampleTx(), accountOf(dropped(claim)).Drop)),
		"log-transaction-unclaimed": written(fromElsewhere, accountOf(del(target, 1), truncate(child))),
	}
	maps.Copy(entries, catalogEntries(write))
	return entries
}

var exampleAncestry = replication.Ancestry{{Timeline: 1, At: 0x19C0000}}

func exampleHeartbeat() *evidence.Heartbeat {
	return &evidence.Heartbeat{
		Nonce: uuid.MustParse("0198f1d0-0000-7000-8000-0000000000b2"), Former: uuid.MustParse("0198f1d0-0000-7000-8000-0000000000b1"),
		At: commitTime, History: 1, Timeline: 1, ServerStart: commitTime.Add(-time.Hour), LookedAt: 0x19C2A00,
	}
}

func exampleMarker(op evidence.Op) *evidence.Marker {
	m := &evidence.Marker{
		Op: op, Reason: evidence.ReasonSlot, Time: commitTime,
		At:   replication.Position{History: 1, Timeline: 1, Commit: 0x19C2FFF},
		From: evidence.Reach{History: 1, Timeline: 1, LSN: 0x19C2B00}, To: evidence.Reach{History: 1, Timeline: 1, LSN: 0x19C3000},
	}
	if op == evidence.Rewind {
		m.Reason, m.At = evidence.ReasonAccepted, replication.Position{History: 2, Timeline: 1, Commit: 0x19C1000}
		m.From.LSN, m.To.LSN = 0x19C1000, 0x19C2B00
	}
	return m
}

func TestLogRecordsAreTheirGoldenFilesAndFitTheirSchemas(t *testing.T) {
	t.Parallel()
	for name, entry := range exampleEntries() {
		golden(t, "log-"+string(entry.Kind), name, entry.Value)
	}
}

func TestAnyLogRecordSaysWhereTheLogStands(t *testing.T) {
	t.Parallel()
	for name, entry := range exampleEntries() {
		end, err := evidence.ParseLogRecord(entry.Value)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if end.Kind != entry.Kind || end.LogPosition != entry.Position || end.More != entry.More || end.Nonce == (uuid.UUID{}) || end.Beat == (uuid.UUID{}) ||
			end.Route != exampleRoute.Fingerprint() || end.RouteVersion != 1 ||
			end.SystemIdentifier != source.SystemIdentifier || end.DatabaseOID != source.DatabaseOID ||
			end.Database != source.Database {
			t.Errorf("%s: read back as %+v", name, end)
		}
	}
}

func TestALogRecordOfAnotherFormatIsRefused(t *testing.T) {
	t.Parallel()
	value := exampleEntries()["log-coverage"].Value
	for _, test := range []struct{ old, new string }{
		{`"schema":1`, `"schema":2`},
		{`"reached":"0/19C2B00"`, `"reached":"nowhere"`},
		{`"system_identifier":"7381000000000000001"`, `"system_identifier":"x"`},
		{`{"kind"`, `["kind"`},
	} {
		if _, err := evidence.ParseLogRecord(bytes.Replace(value, []byte(test.old), []byte(test.new), 1)); err == nil {
			t.Errorf("with %s for %s it is taken", test.new, test.old)
		}
	}
}

// A log goes on that was written before records had numbers.
func TestARecordWithoutANumberIsTheFirstAndTheLast(t *testing.T) {
	t.Parallel()
	value := bytes.Replace(exampleEntries()["log-gap-first"].Value, []byte(`,"seq":3,"more":true`), nil, 1)
	record, err := evidence.ParseLogRecord(value)
	if err != nil || record.Seq != 0 || record.More {
		t.Errorf("read as %+v (%v)", record, err)
	}
	if err := evidencetest.Schema(t, "log-gap").Validate(evidencetest.ParseJSON(t, value)); err != nil {
		t.Errorf("the schema refuses it: %v", err)
	}
	numbered, err := evidence.ParseLogRecord(exampleEntries()["log-gap-first"].Value)
	if err != nil || numbered.Seq != 3 || !numbered.More || numbered.LogPosition.Compare(record.LogPosition) != 1 {
		t.Errorf("with a number read as %+v (%v)", numbered, err)
	}
}

// Nothing of the key may be guessed from the log, and nothing of it is in there.
func TestKeysAreNotInTheLog(t *testing.T) {
	t.Parallel()
	for name, entry := range exampleEntries() {
		if bytes.Contains(entry.Value, evidencetest.TagKey[:8]) || bytes.Contains(entry.Value, []byte("0707070707")) {
			t.Errorf("%s has the tag key", name)
		}
	}
}
