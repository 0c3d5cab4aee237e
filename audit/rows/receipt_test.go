package rows_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"filippo.io/torchwood"
	"github.com/google/uuid"
	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"

	"lapse/audit/evidence"
	"lapse/audit/rows"
	"lapse/audit/tree"
	"lapse/internal/evidencetest"
	"lapse/schemas"
)

// world is a log of one transaction, whose rows are 0 to n-1, among other records, signed.
type world struct {
	record []byte
	leaf   int64
	leaves []tlog.Hash
	signed []byte
	log    *tree.Key
	chunks rows.Chunks
	keys   schemas.EpochKeys
}

func newWorld(t interface{ Fatal(...any) }, n, before, after int, hashed bool) *world {
	w := &world{leaf: int64(before), chunks: rows.Chunks{}, keys: schemas.EpochKeys{"2026-11": evidencetest.RowsKey}}
	var err error
	if w.log, err = tree.NewKey(evidencetest.LogKey, "example.com/log"); err != nil {
		t.Fatal(err)
	}
	route := routeWith(w.keys)
	c := rows.NewCommitter(route, w.keys)
	take := func(chunk *rows.Chunk) {
		if chunk == nil {
			return
		}
		all, err := rows.ParseChunk(chunk.Value)
		if err != nil {
			t.Fatal(err)
		}
		w.chunks.Take(all)
	}
	tx := transaction()
	c.Begin()
	for i := range n {
		e := deleted(tx, uint32(1+i), "public.a", fmt.Sprint(i))
		e.Hashed = hashed
		chunk, err := c.Add(e, []byte(`{"id":"hidden"}`))
		if err != nil {
			t.Fatal(err)
		}
		take(chunk)
	}
	root, last := c.Commit()
	take(last)
	content := &evidence.TransactionContent{
		Committed: evidence.Committed{CommitLSN: tx.CommitLSN, CommitTime: tx.CommitTime, XID: tx.XID}, Verdict: evidence.Match, Rows: root,
		Claim: &schemas.Claim{Policy: "sessions-30d", PolicyVersion: 3},
	}
	writer := evidence.NewLogWriter(route, evidencetest.HashKey, uuid.UUID{1}, nil)
	w.record = writer.Write(content, evidence.LogPosition{Reach: evidence.EndOf(tx)}, false).Value
	of := tree.New(w.log)
	for i := range before + 1 + after {
		value := fmt.Appendf(nil, `{"kind":"coverage","n":%d}`, i)
		if i == before {
			value = w.record
		}
		of.Add(of.Next(value))
		w.leaves = append(w.leaves, tlog.RecordHash(tree.Entry(value)))
	}
	taken, err := of.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	checkpoint, _, err := taken.Sign(0)
	if err != nil {
		t.Fatal(err)
	}
	w.signed, _ = tree.NoteIn(checkpoint)
	return w
}

// receipt is one for a row.
func (w *world) receipt(row int, published string) (*rows.Deletion, error) {
	at := transaction().Position(uint32(1 + row))
	d, err := rows.Prove(w.record, w.keys["2026-11"], w.chunks, &rows.Facts{At: at, Table: "public.a", Op: "delete", Cause: "system", Published: []byte(published)})
	if err != nil {
		return nil, err
	}
	prover, err := tree.NewProver(int64(len(w.leaves)), w.leaf)
	if err != nil {
		return nil, err
	}
	for _, h := range w.leaves {
		prover.Add(h)
	}
	proof, err := prover.Proof()
	if err != nil {
		return nil, err
	}
	d.Columns, d.Proof = []string{"id"}, string(torchwood.FormatProof(w.leaf, proof, w.signed))
	return d, nil
}

func named(id string) rows.NamedBy {
	return func(columns []string) ([]*string, bool) {
		return []*string{&id}, len(columns) == 1 && columns[0] == "id"
	}
}

func TestAReceiptOpensItsRowAndNoOther(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.OneOf(rapid.IntRange(1, 9), rapid.IntRange(1020, 2100)).Draw(rt, "rows")
		hashed := rapid.Bool().Draw(rt, "hashed")
		w := newWorld(rt, n, rapid.IntRange(0, 9).Draw(rt, "before"), rapid.IntRange(0, 9).Draw(rt, "after"), hashed)
		row := rapid.IntRange(0, n-1).Draw(rt, "row")
		published := ""
		if hashed {
			published = `{"id":"hidden"}`
		}
		d, err := w.receipt(row, published)
		if err != nil {
			rt.Fatal(err)
		}
		text, err := json.Marshal(rows.NewReceipt([]rows.Deletion{*d}))
		if err != nil || strings.Contains(string(text), fmt.Sprintf(`"%d"`, row)) {
			rt.Fatalf("the key is in it, %v: %s", err, text)
		}
		read, err := rows.ParseReceipt(text)
		if err != nil {
			rt.Fatal(err)
		}
		shown, err := read.Deletions[0].Check(w.log.Verifier(), named(fmt.Sprint(row)))
		if err != nil || shown.Policy != "sessions-30d" || !shown.Committed.Equal(committed) || shown.Leaf != w.leaf || shown.Size != int64(len(w.leaves)) {
			rt.Fatalf("it shows %+v, %v", shown, err)
		}
		if _, err := read.Deletions[0].Check(w.log.Verifier(), named(fmt.Sprint(row+1))); !errors.Is(err, rows.ErrAnotherKey) {
			rt.Fatalf("another key fits: %v", err)
		}
		other, err := tree.NewKey(evidencetest.HashKey, "example.com/log")
		if err != nil {
			rt.Fatal(err)
		}
		if _, err := read.Deletions[0].Check(other.Verifier(), named(fmt.Sprint(row))); err == nil {
			rt.Fatal("it verifies under another log's key")
		}
	})
}

func TestAReceiptIsAsItsSchemaSays(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 5} {
		d, err := newWorld(t, n, 1, 1, true).receipt(0, `{"id":"hidden"}`)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(rows.NewReceipt([]rows.Deletion{*d}))
		if err != nil {
			t.Fatal(err)
		}
		if err := evidencetest.Schema(t, "receipt").Validate(evidencetest.ParseJSON(t, text)); err != nil {
			t.Error(err)
		}
	}
}

// Who writes into the proof store can at most keep a receipt from being made.
func TestForgedChunksMakeNoReceipt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 2100, 3, 2, false)
	forged := make([]rows.Commitment, 1024)
	for i := range forged {
		forged[i] = rows.Commitment{Ordinal: uint32(1 + i), Hash: tlog.Hash{1}}
	}
	w.chunks.Take(forged)
	w.chunks.Take(forged[7:])
	w.chunks.Take([]rows.Commitment{{Ordinal: 2049, Hash: tlog.Hash{2}}})
	d, err := w.receipt(2099, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Check(w.log.Verifier(), named("2099")); err != nil {
		t.Error(err)
	}
	for first := range w.chunks {
		if first != 1 {
			delete(w.chunks, first)
		}
	}
	if _, err := w.receipt(2099, ""); !errors.Is(err, rows.ErrForgotten) {
		t.Errorf("of half of the commitments: %v", err)
	}
	if _, err := w.receipt(5000, ""); err == nil {
		t.Error("a row that the transaction does not have")
	}
}

// Without the key of the month nobody can tell whether a commitment is of a row: the salt of another row, or none, does not open it.
func TestNoOtherSaltOpensARow(t *testing.T) {
	t.Parallel()
	w := newWorld(t, 3, 0, 0, false)
	for _, salts := range []func(uint32) rows.Salt{
		rows.Salts(evidencetest.LogKey, 7381000000000000001, 16384, transaction().Position(0)),
		rows.Salts(make(schemas.Key, schemas.MinKey), 7381000000000000001, 16384, transaction().Position(0)),
		func(uint32) rows.Salt { return rows.Salt{} },
	} {
		d, err := w.receipt(1, "")
		if err != nil {
			t.Fatal(err)
		}
		salt := salts(d.Ordinal)
		d.Salt = salt[:]
		if _, err := d.Check(w.log.Verifier(), named("1")); !errors.Is(err, rows.ErrAnotherKey) {
			t.Errorf("it opens: %v", err)
		}
	}
}

func FuzzParseReceipt(f *testing.F) {
	f.Add([]byte(`{"lapse_receipt":1,"notice":"","deletions":[{"record":"{}","tlog_proof":"","salt":"","index":0,"path":[]}]}`))
	log, err := tree.NewKey(evidencetest.LogKey, "example.com/log")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := rows.ParseReceipt(text)
		if err != nil {
			return
		}
		for i := range r.Deletions {
			if _, err := r.Deletions[i].Check(log.Verifier(), named("1")); err == nil {
				t.Fatal("nobody has signed it")
			}
			r.Deletions[i].LogName()
		}
	})
}
