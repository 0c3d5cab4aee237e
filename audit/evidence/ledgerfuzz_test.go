package evidence_test

import (
	"encoding/hex"
	"reflect"
	"testing"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"lapse/audit/evidence"
	"lapse/internal/evidencetest"
	"lapse/replication"
	"lapse/schemas"
)

// FuzzALedgerRowNeverStopsTheAudit puts anything into any column of a batch row. Whatever its writer chose, reading it
// ends, and only the claim that was signed verifies.
func FuzzALedgerRowNeverStopsTheAudit(f *testing.F) {
	for column := range byte(15) {
		f.Add(column, []byte("1"))
		f.Add(column, []byte("{1,2,3}"))
		f.Add(column, []byte("2026-11-21 10:15:30.123456789+00"))
		f.Add(column, []byte(`\x00`))
	}
	f.Add(byte(8), []byte("{,}"))
	f.Add(byte(5), []byte("infinity"))
	f.Add(byte(5), []byte("0044-03-15 12:00:00+00 BC"))
	f.Fuzz(func(t *testing.T, column byte, value []byte) {
		change := signed(exampleClaim())
		at := int(column) % len(change.New)
		original := change.New[at].Bytes
		change.New[at].Bytes = value
		c := evidence.NewClassifier(source, []schemas.Key{evidencetest.TagKey})
		c.Begin(exampleTx())
		c.Classify(change)
		if got := c.Claim(); got != nil && !reflect.DeepEqual(*got, exampleClaim()) {
			t.Fatalf("%q for %q in column %d makes a claim that verifies: %+v", value, original, at, *got)
		}
	})
}

func FuzzAResultRowNeverStopsTheAudit(f *testing.F) {
	f.Add(`{"16390": 5}`, "5")
	f.Add(`{"16390": 1e3}`, "-5")
	f.Add(`[]`, "")
	f.Add(`{"16390": 9223372036854775808, "x": null}`, "x")
	f.Fuzz(func(t *testing.T, counts, deleted string) {
		change := resultRow(exampleClaim(), 1)
		change.New[3].Bytes, change.New[2].Bytes = []byte(counts), []byte(deleted)
		if r := evidence.ParseResult(change); r != nil {
			for _, c := range r.ByRelation {
				if c.Rows < 0 {
					t.Fatalf("%q gives a count of %d", counts, c.Rows)
				}
			}
		}
	})
}

// What the executor signs and PostgreSQL writes is what the audit reads.
func TestAClaimReadsBackAsItWasSigned(t *testing.T) {
	t.Parallel()
	micros := rapid.Int64Range(0, 4102444800000000)
	rapid.Check(t, func(t *rapid.T) {
		claim := schemas.Claim{
			SystemIdentifier: rapid.Uint64().Draw(t, "system"), DatabaseOID: rapid.Uint32().Draw(t, "database"),
			History: schemas.History(rapid.Uint32().Draw(t, "history")), Timeline: schemas.Timeline(rapid.Uint32().Draw(t, "timeline")),
			XID: schemas.XID(rapid.Uint64().Draw(t, "xid")), StartedAt: time.UnixMicro(micros.Draw(t, "started")).UTC(),
			Batch:    uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "batch")),
			PolicyID: schemas.PolicyID(rapid.Int32().Draw(t, "id")), Policy: schemas.PolicyName(rapid.StringMatching(`[a-z0-9][a-z0-9_.-]{0,62}`).Draw(t, "policy")),
			PolicyVersion: schemas.PolicyVersion(rapid.Int32().Draw(t, "version")),
			Run:           uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "run")),
			Cutoff:        time.UnixMicro(micros.Draw(t, "cutoff")).UTC(), HoldVersion: schemas.HoldVersion(rapid.Int64().Draw(t, "hold")),
			Target: rapid.Uint32().Draw(t, "target"), Cascades: rapid.SliceOfN(rapid.Uint32(), 0, 4).Draw(t, "cascades"),
			Functions: schemas.Digest(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "functions")),
		}
		if len(claim.Cascades) == 0 {
			claim.Cascades = nil
		}
		var back schemas.Claim
		mac, ok := evidence.ParseClaim(signed(claim), &back)
		if !ok || !reflect.DeepEqual(back, claim) || !back.Verify(evidencetest.TagKey, mac) {
			t.Fatalf("%+v was read back as %+v (%v, MAC %s)", claim, back, ok, hex.EncodeToString(mac))
		}
	})
}

func TestAResultInAnyOrderOfColumnsIsRead(t *testing.T) {
	t.Parallel()
	r := relation(16110, "lapse", "batch_result", "by_relation", "finished_at", "deleted", "batch", "later", "picked")
	claim := exampleClaim()
	got := evidence.ParseResult(&replication.Change{
		Op: replication.OpInsert, Relation: r,
		New: row(`{"16400": 2, "16390": 1}`, "2026-11-21 10:15:30+00", 1, claim.Batch, nil, 3),
	})
	want := &evidence.Result{Batch: claim.Batch, Picked: 3, Deleted: 1, ByRelation: []evidence.RelationCount{{16390, 1}, {16400, 2}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
