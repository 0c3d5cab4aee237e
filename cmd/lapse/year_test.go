package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"lapse/audit/evidence"
	"lapse/audit/export"
	"lapse/audit/rows"
	"lapse/audit/tree"
	"lapse/internal/evidencetest"
	"lapse/replication"
	"lapse/schemas"
)

// yearFile is a partition's file.
type yearFile struct {
	of   export.File
	to   *bufio.Writer
	file *os.File
	sum  hash.Hash
}

// year writes an export, or what else keeps the topics' records.
type year struct {
	t         *testing.T
	dir       string
	keep      func(f *yearFile, rec *schemas.Record) // nil: lines of the export
	keys      schemas.EpochKeys
	route     *evidence.Route
	router    *evidence.Router
	committer *rows.Committer
	writer    *evidence.LogWriter
	key       *tree.Key
	tree      *tree.Tree
	notes     [][]byte
	files     []*yearFile // the log's first, the commitments' last
	at        time.Time
	pause     time.Duration
	signs     int    // after so many transactions of users comes a checkpoint
	before    func() // called before each of these; nil: nothing
	accounts  int    // all transactions
	lsn       schemas.LSN
	id        int64
	events    int
}

const yearLog = "app.example.com/year"

// yearOf begins an export.
func yearOf(t *testing.T, dir, log string) *year {
	y := newYear(t, dir, log)
	for i := range y.files {
		y.create(y.files[i])
	}
	return y
}

func newYear(t *testing.T, dir, log string) *year {
	y := &year{t: t, dir: dir, keys: schemas.EpochKeys{}, at: time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC), lsn: 0x100000, signs: 200}
	for month := range 13 {
		y.keys[schemas.EpochOf(y.at.AddDate(0, month, 0))] = evidencetest.RowsKey
	}
	var err error
	if y.key, err = tree.NewKey(evidencetest.LogKey, log); err != nil {
		t.Fatal(err)
	}
	y.tree = tree.New(y.key)
	y.route = &evidence.Route{
		Version: 1, Source: evidence.Source{SystemIdentifier: 7381000000000000001, DatabaseOID: 16384, Database: "app", Encoding: "UTF8", Slot: "lapse"},
		System: evidence.Topic{Name: "system", Partitions: 6}, User: evidence.Topic{Name: "user", Partitions: 6}, Log: evidence.Topic{Name: "log", Partitions: 1},
		Format: evidence.FormatSpanner, HashKey: evidencetest.HashKey.Fingerprint(), PublicKey: y.key.Public(), RowsKeys: evidence.RowsKeysOf(y.keys),
	}
	y.router, y.committer = evidence.NewRouter(y.route, evidencetest.HashKey), rows.NewCommitter(y.route, y.keys)
	y.writer = evidence.NewLogWriter(y.route, evidencetest.HashKey, uuid.UUID{1}, nil)
	y.file("log", 0)
	for _, topic := range []string{"system", "user"} {
		for p := range int32(6) {
			y.file(topic, p)
		}
	}
	y.file("proofs", 0)
	return y
}

func (y *year) file(topic string, partition int32) {
	y.files = append(y.files, &yearFile{of: export.File{Name: export.FileName(topic, partition), Topic: topic, Partition: partition}})
}

func (y *year) create(f *yearFile) {
	var err error
	if f.file, err = os.Create(filepath.Join(y.dir, f.of.Name)); err != nil {
		y.t.Fatal(err)
	}
	f.sum = sha256.New()
	f.to = bufio.NewWriterSize(io.MultiWriter(f.file, f.sum), 1<<18)
}

func (y *year) append(f *yearFile, rec *schemas.Record) {
	if y.keep != nil {
		y.keep(f, rec)
		return
	}
	line, err := export.LineOf(rec, int64(f.of.Records)).Text()
	if err == nil {
		_, err = f.to.Write(line)
	}
	if err != nil {
		y.t.Fatal(err)
	}
	f.of.Records++
}

func (y *year) record(c evidence.Content, lsn schemas.LSN, seq uint32) {
	rec := y.writer.Record(y.writer.Write(c, evidence.LogPosition{Reach: evidence.Reach{History: 1, Timeline: 1, LSN: lsn}, Seq: seq}, false))
	leaf := y.tree.Next(rec.Value)
	rec.Headers = leaf.AppendHeaders(rec.Headers)
	y.tree.Add(leaf)
	y.append(y.files[0], &rec)
}

func (y *year) sign() {
	taken, err := y.tree.Snapshot()
	if err != nil {
		y.t.Fatal(err)
	}
	value, signed, err := taken.Sign(int64(y.files[0].of.Records))
	if err != nil {
		y.t.Fatal(err)
	}
	y.notes = append(y.notes, signed)
	y.append(y.files[0], &schemas.Record{Value: value, Time: y.at, Headers: []schemas.Header{{Key: schemas.HeaderOp, Value: []byte(schemas.OpFence)}}})
}

// transactions writes so many of users, and after every so many of them a batch of so many rows.
func (y *year) transactions(users, every, batch int) {
	const policies = 100
	y.begin()
	for i := range users {
		if y.before != nil {
			y.before()
		}
		y.transaction(evidence.User, fmt.Sprintf("public.t%d", i%policies), 1, nil)
		y.at = y.at.Add(y.pause)
		if i%every == every-1 {
			number := i / every
			claim := &schemas.Claim{
				Batch: uuid.UUID{2, byte(number), byte(number >> 8), byte(number >> 16)}, Policy: schemas.PolicyName(fmt.Sprintf("p%d", number%policies)), PolicyVersion: 1,
				Run: uuid.UUID{3}, Cutoff: y.at, StartedAt: y.at, Functions: schemas.Digest{1},
			}
			y.transaction(evidence.System, fmt.Sprintf("public.t%d", number%policies), batch, claim)
			y.at = y.at.Add(y.pause)
		}
		if i%y.signs == y.signs-1 || i == users-1 {
			y.sign()
		}
	}
}

func (y *year) begin() {
	y.record(&evidence.OriginContent{Slot: "lapse", Keys: []string{evidencetest.RowsKey.Fingerprint()}, Consistent: y.lsn, PublicKey: y.key.Public(), RowsKeys: y.route.RowsKeys, HashKey: y.route.HashKey}, y.lsn, 0)
	y.record(&evidence.RouteContent{Route: y.route, At: y.at}, y.lsn, 1)
}

func (y *year) transaction(cause evidence.Cause, table string, size int, claim *schemas.Claim) {
	y.lsn += 0x1000
	y.accounts++
	tx := &replication.Tx{CommitLSN: y.lsn, EndLSN: y.lsn + 0x80, CommitTime: y.at.Truncate(time.Microsecond), XID: uint32(y.lsn >> 12), Timeline: 1, History: 1}
	c := &evidence.TransactionContent{Committed: evidence.Committed{CommitLSN: tx.CommitLSN, CommitTime: tx.CommitTime, XID: tx.XID}, Verdict: evidence.Unclaimed, Claim: claim}
	if claim != nil {
		c.Verdict = evidence.Match
	}
	c.Observed = []evidence.Tally{{OID: 1, Table: table, Op: evidence.Delete, Cause: cause, Events: uint64(size)}}
	proofs := y.files[len(y.files)-1]
	store := func(chunk *rows.Chunk) {
		if chunk != nil {
			y.append(proofs, &schemas.Record{Value: chunk.Value, Time: tx.CommitTime, Headers: rows.Headers(&y.route.Source, chunk)})
		}
	}
	y.committer.Begin()
	for n := range size {
		y.id++
		event := &evidence.Event{
			Tx: tx, Ordinal: uint32(1 + n), Op: evidence.Delete, Cause: cause, Table: table, TableOID: 1, Claim: claim,
			Keys: []evidence.Key{{Name: "id", Value: []byte(strconv.FormatInt(y.id, 10))}},
		}
		routed := y.router.Route(event)
		chunk, err := y.committer.Add(event, routed.Key)
		if err != nil {
			y.t.Fatal(err)
		}
		store(chunk)
		for _, p := range routed.Partitions {
			at := 1 + int(p)
			if routed.Topic == "user" {
				at += 6
			}
			y.append(y.files[at], &schemas.Record{Key: routed.Key, Value: routed.Value, Headers: routed.Headers, Time: tx.CommitTime})
			y.events++
		}
	}
	root, last := y.committer.Commit()
	store(last)
	c.Rows = root
	y.record(c, tx.EndLSN, 0)
}

// close writes the tree and the manifest, and returns the log's public key.
func (y *year) close() string {
	t := y.t
	manifest := &export.Manifest{Format: 1, Topics: export.Topics{System: "system", User: "user", Log: "log", Proofs: "proofs"}}
	for _, f := range y.files {
		if err := f.to.Flush(); err != nil {
			t.Fatal(err)
		}
		if err := f.file.Close(); err != nil {
			t.Fatal(err)
		}
		f.of.End, f.of.SHA256 = int64(f.of.Records), hex.EncodeToString(f.sum.Sum(nil))
		manifest.Files = append(manifest.Files, f.of)
	}
	newest := y.notes[len(y.notes)-1]
	of, err := tree.Peek(newest)
	if err != nil {
		t.Fatal(err)
	}
	public := y.key.Public()
	manifest.Tree = &export.Tree{Log: of.Origin, Records: of.Size, Root: of.Root.String(), PublicKey: &public}
	if err := manifest.Write(y.dir); err != nil { // to be read by export.Open; it has no sum of the former checkpoints yet
		t.Fatal(err)
	}
	files, err := export.Open(t.Context(), y.dir)
	if err != nil {
		t.Fatal(err)
	}
	to, err := tree.NewExport(y.dir, newest)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range y.notes[:len(y.notes)-1] {
		if err := to.Former(one); err != nil {
			t.Fatal(err)
		}
	}
	_, err = files.Each(t.Context(), &manifest.Files[0], func(rec *schemas.Record, _ int64) error {
		if rec.IsFence() {
			return nil
		}
		return to.Add(rec.Value)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	manifest.Tree.Former = to.FormerSum()
	if err := manifest.Write(y.dir); err != nil {
		t.Fatal(err)
	}
	return public
}
