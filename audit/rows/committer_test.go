package rows_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"

	"lapse/audit/evidence"
	"lapse/audit/rows"
	"lapse/internal/evidencetest"
	"lapse/replication"
	"lapse/schemas"
)

var committed = time.Date(2026, 11, 21, 10, 15, 30, 123456000, time.UTC)

func routeWith(keys schemas.EpochKeys) *evidence.Route {
	return &evidence.Route{
		Source:   evidence.Source{SystemIdentifier: 7381000000000000001, DatabaseOID: 16384, Encoding: "UTF8"},
		RowsKeys: evidence.RowsKeysOf(keys),
	}
}

func transaction() *replication.Tx {
	return &replication.Tx{CommitLSN: 0x19C2A40, EndLSN: 0x19C2A78, CommitTime: committed, XID: 745, Timeline: 2, History: 3}
}

func deleted(tx *replication.Tx, ordinal uint32, table, id string) *evidence.Event {
	return &evidence.Event{
		Tx: tx, Ordinal: ordinal, Op: evidence.Delete, Cause: evidence.System, Table: table, Keys: []evidence.Key{{Name: "id", Value: []byte(id)}},
	}
}

// naive is the commitment as doc.go has it, written a second time.
func naive(key schemas.Key, tx *replication.Tx, ordinal uint32, texts ...string) tlog.Hash {
	var place bytes.Buffer
	place.WriteByte(1)
	for _, n := range []any{uint64(7381000000000000001), uint32(16384), uint32(tx.History), uint32(tx.Timeline), uint64(tx.CommitLSN)} {
		_ = binary.Write(&place, binary.BigEndian, n)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write(place.Bytes())
	salt := sha256.Sum256(binary.BigEndian.AppendUint32(mac.Sum(nil), ordinal))
	leaf := binary.BigEndian.AppendUint32(append(salt[:], place.Bytes()...), ordinal)
	for _, text := range texts {
		leaf = append(binary.AppendUvarint(leaf, uint64(len(text))), text...)
	}
	return tlog.RecordHash(leaf)
}

// rootOf is the root of a tree as another library has it.
func rootOf(t interface{ Fatal(...any) }, hashes []tlog.Hash) tlog.Hash {
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		out := make([]tlog.Hash, len(indexes))
		for i, x := range indexes {
			out[i] = stored[x]
		}
		return out, nil
	})
	for i, h := range hashes {
		add, err := tlog.StoredHashesForRecordHash(int64(i), h, reader)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, add...)
	}
	root, err := tlog.TreeHash(int64(len(hashes)), reader)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func TestARootIsOverWhatTheDocumentSays(t *testing.T) {
	t.Parallel()
	keys := schemas.EpochKeys{"2026-11": evidencetest.RowsKey}
	rapid.Check(t, func(rt *rapid.T) {
		c := rows.NewCommitter(routeWith(keys), keys)
		for range rapid.IntRange(1, 3).Draw(rt, "transactions") { // what one leaves must not be in the next
			tx := transaction()
			tx.CommitLSN += schemas.LSN(rapid.IntRange(0, 9).Draw(rt, "position"))
			c.Begin()
			n := rapid.OneOf(rapid.IntRange(0, 5), rapid.IntRange(1000, 2600)).Draw(rt, "events")
			var want, stored []tlog.Hash
			ordinal, first := uint32(0), uint32(0)
			take := func(chunk *rows.Chunk) {
				if chunk == nil {
					return
				}
				rec := &schemas.Record{Value: bytes.Clone(chunk.Value), Headers: rows.Headers(&routeWith(keys).Source, chunk)}
				at, all, ok := rows.ChunkOf(rec)
				if !ok || at.Commit != tx.CommitLSN || at.History != 3 || at.Timeline != 2 {
					rt.Fatalf("a chunk of %d bytes is read as %v of %v", len(rec.Value), ok, at)
				}
				for _, one := range all {
					stored = append(stored, one.Hash)
				}
			}
			for i := range n {
				ordinal += uint32(1 + rapid.IntRange(0, 40).Draw(rt, "skipped")/39)
				if i == 0 {
					first = ordinal
				}
				e := deleted(tx, ordinal, rapid.SampledFrom([]string{"public.a", "public.b"}).Draw(rt, "table"), fmt.Sprint(i))
				published := `{"id":"hidden"}`
				want0 := ""
				if e.Hashed = i%7 == 3; e.Hashed {
					want0 = published
				}
				want = append(want, naive(evidencetest.RowsKey, tx, ordinal, e.Table, "delete", "system", fmt.Sprintf(`{"id":"%d"}`, i), want0))
				chunk, err := c.Add(e, []byte(published))
				if err != nil {
					rt.Fatal(err)
				}
				take(chunk)
			}
			root, last := c.Commit()
			take(last)
			if n == 0 {
				if root != nil || last != nil {
					rt.Fatal("a transaction without events has a root")
				}
				continue
			}
			right := rootOf(rt, want)
			if root.Count != uint64(n) || root.Epoch != "2026-11" || root.First != first || !bytes.Equal(root.Root, right[:]) {
				rt.Fatalf("the root of %d events is %+v", n, root)
			}
			if n == 1 {
				want = nil // the root is the commitment
			}
			if len(stored) != len(want) {
				rt.Fatalf("of %d commitments %d are stored", len(want), len(stored))
			}
			for i := range want {
				if stored[i] != want[i] {
					rt.Fatalf("commitment %d is another one", i)
				}
			}
		}
	})
}

func TestAReceiptsFactsComeToTheCommitment(t *testing.T) {
	t.Parallel()
	tx := transaction()
	f := rows.Facts{
		SystemIdentifier: 7381000000000000001, DatabaseOID: 16384, At: tx.Position(9), Table: "public.a", Op: "delete", Cause: "user", Identity: []byte(`{"id":"42"}`),
	}
	salts := rows.Salts(evidencetest.RowsKey, f.SystemIdentifier, f.DatabaseOID, f.At)
	if f.Commitment(salts(9)) != naive(evidencetest.RowsKey, tx, 9, "public.a", "delete", "user", `{"id":"42"}`, "") {
		t.Error("the facts of a receipt come to another commitment")
	}
	if salts(9) == salts(10) {
		t.Error("two rows have one salt: who opens one opens the other")
	}
}

// A transaction with a replication origin names any month. Nobody can make a destroyed key again: the audit goes on without.
func TestAMonthWhoseKeyWasDestroyedHasNoRoot(t *testing.T) {
	t.Parallel()
	keys := schemas.EpochKeys{"2026-10": nil, "2026-11": evidencetest.RowsKey}
	route := routeWith(keys)
	keys["2026-10"] = evidencetest.RowsKey // a copy of the file: the log says that it was destroyed
	c := rows.NewCommitter(route, keys)
	for _, month := range []schemas.Epoch{"2026-11", "2026-10", "2026-11"} {
		tx := transaction()
		tx.CommitTime = month.Begin()
		c.Begin()
		for n := range uint32(3000) {
			if chunk, err := c.Add(deleted(tx, n, "public.a", "1"), nil); err != nil || month == "2026-10" && chunk != nil {
				t.Fatalf("%s: %v, %v", month, chunk, err)
			}
		}
		if c.Destroyed() == month != (month == "2026-10") {
			t.Errorf("the key of %s was destroyed: %q", month, c.Destroyed())
		}
		root, _ := c.Commit()
		if (root == nil) != (month == "2026-10") || root != nil && root.Epoch != month || c.Destroyed() != "" {
			t.Errorf("%s has the root %+v", month, root)
		}
	}
}

func TestAMonthWithoutKeyIsNotCommittedTo(t *testing.T) {
	t.Parallel()
	keys := schemas.EpochKeys{"2026-10": evidencetest.RowsKey, "2027-01": evidencetest.RowsKey}
	c := rows.NewCommitter(routeWith(keys), keys)
	other := rows.NewCommitter(routeWith(keys), schemas.EpochKeys{"2026-10": evidencetest.LogKey})
	for at, fine := range map[string]bool{
		"2026-10-01T00:00:00Z": true, "2026-10-31T23:59:59.999999Z": true, "2026-11-01T00:00:00Z": false, "2026-12-24T00:00:00Z": false,
		"2027-01-31T23:59:59Z": true, "2027-02-01T00:00:00Z": false,
	} {
		tx := transaction()
		var err error
		if tx.CommitTime, err = time.Parse(time.RFC3339, at); err != nil {
			t.Fatal(err)
		}
		for committer, want := range map[*rows.Committer]bool{c: fine, other: false} {
			committer.Begin()
			_, err = committer.Add(deleted(tx, 1, "public.a", "1"), nil)
			var none *rows.NoKeyError
			if errors.As(err, &none) == want || want && err != nil {
				t.Errorf("%s: %v", at, err)
			}
		}
	}
	if rows.NewCommitter(routeWith(nil), keys) != nil {
		t.Error("a route without keys has a committer")
	}
}

func FuzzParseChunk(f *testing.F) {
	f.Add(append([]byte{0, 0, 0, 7, 0, 0, 0, 1}, make([]byte, 32)...))
	f.Add(append([]byte{0xff, 0xff, 0xff, 0xff, 0, 0, 0, 2}, make([]byte, 64)...))
	f.Fuzz(func(t *testing.T, value []byte) {
		all, err := rows.ParseChunk(value)
		if err != nil {
			return
		}
		for i := 1; i < len(all); i++ {
			if all[i].Ordinal <= all[i-1].Ordinal {
				t.Fatal("ordinals do not ascend")
			}
		}
	})
}

func TestACommitmentCostsNoMemory(t *testing.T) {
	keys := schemas.EpochKeys{"2026-11": evidencetest.RowsKey}
	c := rows.NewCommitter(routeWith(keys), keys)
	e := deleted(transaction(), 0, "public.sessions", "1234567")
	c.Begin()
	one := func() {
		e.Ordinal++
		if _, err := c.Add(e, nil); err != nil {
			t.Fatal(err)
		}
	}
	for range 3000 {
		one()
	}
	if n := testing.AllocsPerRun(3000, one); n > 0 {
		t.Errorf("%v allocations for an event", n)
	}
}

func BenchmarkCommitment(b *testing.B) {
	keys := schemas.EpochKeys{"2026-11": evidencetest.RowsKey}
	for _, size := range []int{1, 10, 5000} {
		b.Run(fmt.Sprintf("rows=%d", size), func(b *testing.B) {
			c := rows.NewCommitter(routeWith(keys), keys)
			e := deleted(transaction(), 0, "public.sessions", "1234567")
			b.ReportAllocs()
			for i := 0; i < b.N; {
				c.Begin()
				e.Ordinal = 0
				for ; e.Ordinal < uint32(size) && i < b.N; i++ {
					e.Ordinal++
					if _, err := c.Add(e, nil); err != nil {
						b.Fatal(err)
					}
				}
				c.Commit()
			}
		})
	}
}
