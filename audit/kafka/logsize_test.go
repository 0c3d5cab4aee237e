package kafka

import (
	"crypto/sha256"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/uuid"

	"lapse/audit/evidence"
	"lapse/audit/tree"
	"lapse/internal/evidencetest"
	"lapse/replication"
	"lapse/schemas"
)

// A record of the log is kept for ever, and there is one for each transaction of a user that deletes. This is how many bytes it takes in a batch, by
// how many others are in it: as many as transactions in a second, or 200 in a backlog.
func TestAUsersRecordTakesFewBytesOfALog(t *testing.T) {
	t.Parallel()
	codec, err := Zstd.codec()
	if err != nil {
		t.Fatal(err)
	}
	for n, most := range map[int]float64{20: 113, 95: 84, 200: 81} {
		for _, judged := range []bool{false, true} {
			b := new(batch)
			b.reset()
			for _, rec := range usersRecords(t, n, judged) {
				b.add(&rec, 1<<20)
			}
			b.seal(codec, session{}, 0)
			got := float64(b.sent()) / float64(n)
			t.Logf("%d records a batch, judged %t: %.1f bytes each", n, judged, got)
			if judged {
				most += 4 // whether the row was due
			}
			if got > most {
				t.Errorf("with %d in a batch, judged %t, a record takes %.1f bytes, want at most %.0f", n, judged, got, most)
			}
		}
	}
}

// usersRecords are the records of so many transactions of one row each, which commit within a second. judged: each says whether the row was due.
func usersRecords(t *testing.T, n int, judged bool) (all []schemas.Record) {
	t.Helper()
	key, err := tree.NewKey(evidencetest.LogKey, "app.example.com/lapse")
	if err != nil {
		t.Fatal(err)
	}
	route := &evidence.Route{
		Version: 1, Source: evidence.Source{SystemIdentifier: 7381000000000000001, DatabaseOID: 16384, Database: "app", Encoding: "UTF8", Slot: "lapse"},
		System: evidence.Topic{Name: "lapse.deletes.system", Partitions: 6}, User: evidence.Topic{Name: "lapse.deletes.user", Partitions: 6},
		Log: evidence.Topic{Name: "lapse.log", Partitions: 1}, Format: evidence.FormatSpanner, HashKey: evidencetest.HashKey.Fingerprint(), PublicKey: key.Public(),
	}
	w := evidence.NewLogWriter(route, evidencetest.HashKey, uuid.New(), &evidence.Heartbeat{Nonce: uuid.New()})
	log, draw := tree.New(key), rand.New(rand.NewPCG(1, uint64(n)))
	at, lsn := time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC), schemas.LSN(0x3A1F2C40)
	for i := range n {
		at, lsn = at.Add(time.Duration(1+draw.IntN(2_000_000/n))*time.Microsecond), lsn+schemas.LSN(8*(16+draw.IntN(20)))
		tx := &replication.Tx{CommitLSN: lsn, EndLSN: lsn + 48, CommitTime: at, XID: uint32(1234567 + i), Timeline: 1, History: 1}
		root := sha256.Sum256([]byte{byte(i), byte(i >> 8)})
		tally := evidence.Tally{OID: 16420, Table: "shop.sessions", Op: evidence.Delete, Cause: evidence.User, Events: 1}
		if judged {
			tally.Judged, tally.Due, tally.NotDue = 1, uint64(root[0]%2), uint64(1-root[0]%2)
		}
		rec := w.Record(w.Write(&evidence.TransactionContent{
			Committed: evidence.Committed{CommitLSN: tx.CommitLSN, CommitTime: tx.CommitTime, XID: tx.XID}, Verdict: evidence.Unclaimed,
			Observed: []evidence.Tally{tally},
			Rows:     &evidence.RowsRoot{Epoch: "2026-11", Count: 1, First: 1, Root: root[:]},
		}, evidence.LogPosition{Reach: evidence.EndOf(tx)}, false))
		leaf := log.Next(rec.Value)
		rec.Headers = leaf.AppendHeaders(rec.Headers)
		log.Add(leaf)
		all = append(all, rec)
	}
	return all
}
