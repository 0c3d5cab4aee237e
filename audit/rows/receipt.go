package rows

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"lapse/audit/evidence"
	"lapse/audit/tree"
	"lapse/replication"
	"lapse/schemas"
)

// Receipt proves to someone who knows a row's key that the row was deleted. The key is not in it.
type Receipt struct {
	Version   int        `json:"lapse_receipt"`
	Notice    string     `json:"notice"` // for people; nothing checks it
	Deletions []Deletion `json:"deletions"`
}

// Notice is the notice in every receipt.
const Notice = "Personal data: anyone with this receipt can try keys until one fits. Check it with: lapse verify FILE --key KEY --public-key NAME+HASH+KEY"

// Deletion is one deletion of a row. A row that was inserted again and deleted again has two.
type Deletion struct {
	Record string `json:"record"`     // the transaction's, as the log has it
	Proof  string `json:"tlog_proof"` // C2SP tlog-proof: that the record is a leaf of the log

	Ordinal   uint32   `json:"ordinal"`
	Table     string   `json:"table"`
	Op        string   `json:"op"`
	Cause     string   `json:"cause"`
	Columns   []string `json:"columns"`             // the key's columns, in the table's order
	Published string   `json:"published,omitempty"` // what the event has in place of a hidden key
	Salt      []byte   `json:"salt"`
	Index     int64    `json:"index"` // the event's index in the transaction
	Path      [][]byte `json:"path"`  // inclusion proof in the transaction's tree
}

// NewReceipt makes a receipt of one row's deletions.
func NewReceipt(deletions []Deletion) *Receipt { return &Receipt{version, Notice, deletions} }

// ParseReceipt parses a receipt. It checks nothing.
func ParseReceipt(text []byte) (*Receipt, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	r := &Receipt{}
	switch err := d.Decode(r); {
	case err != nil:
		return nil, fmt.Errorf("it is no receipt: %w", err)
	case r.Version != version:
		return nil, fmt.Errorf("it is a receipt of version %d, and this program knows %d", r.Version, version)
	case len(r.Deletions) == 0:
		return nil, errors.New("it is a receipt of nothing")
	}
	return r, nil
}

// Shown is what a receipt's deletion proves.
type Shown struct {
	Table, Op, Cause string
	Policy           string // empty if no policy deleted the row
	Version          int32
	Committed        time.Time
	XID              uint32
	CommitLSN        schemas.LSN
	Database         string
	Log              string
	Leaf             int64 // the record's index in the log
	Size             int64 // the signed tree's
}

// ErrAnotherKey says that the row with this key is not the deleted one, or that the deletion's facts were changed.
var ErrAnotherKey = errors.New("it is not the deletion of the row with this key")

// NamedBy returns the values of a row's key, in the order of columns, nil for NULL; ok is false if the key has other columns.
type NamedBy func(columns []string) (values []*string, ok bool)

// Check verifies a deletion offline: the signature, the record in the log, the row in the record. It returns ErrAnotherKey if everything but
// the row fits.
func (d *Deletion) Check(log note.Verifier, row NamedBy) (*Shown, error) {
	policy := torchwood.ThresholdPolicy(2, torchwood.OriginPolicy(log.Name()), torchwood.SingleVerifierPolicy(log))
	record := []byte(d.Record)
	if err := torchwood.VerifyProof(policy, tlog.RecordHash(tree.Entry(record)), []byte(d.Proof)); err != nil {
		return nil, fmt.Errorf("its record is not shown to be in the log: %w", err)
	}
	t, err := readTransaction(record)
	if err != nil {
		return nil, err
	}
	keys, ok := t.keys(d.Columns, row)
	if !ok {
		return nil, fmt.Errorf("%w: a row of %s is named by %d columns", ErrAnotherKey, d.Table, len(d.Columns))
	}
	at := t.at
	at.Ordinal = d.Ordinal
	facts := Facts{
		SystemIdentifier: t.record.SystemIdentifier, DatabaseOID: t.record.DatabaseOID, At: at, Table: d.Table, Op: d.Op, Cause: d.Cause,
		Identity: evidence.AppendIdentity(nil, keys, t.form), Published: []byte(d.Published),
	}
	path := make(tlog.RecordProof, len(d.Path))
	for i, h := range d.Path {
		if len(h) != tlog.HashSize {
			return nil, errors.New("its path has something else than hashes")
		}
		path[i] = tlog.Hash(h)
	}
	if len(d.Salt) != len(Salt{}) {
		return nil, errors.New("its salt is cut")
	}
	if tlog.CheckRecord(path, int64(t.rows.Count), tlog.Hash(t.rows.Root), d.Index, facts.Commitment(Salt(d.Salt))) != nil {
		return nil, ErrAnotherKey
	}
	shown := &Shown{
		Table: d.Table, Op: d.Op, Cause: d.Cause, Committed: t.content.CommitTime, XID: t.content.XID, CommitLSN: t.content.CommitLSN,
		Database: t.record.Database, Log: log.Name(),
	}
	if c := t.content.Claim; c != nil && d.Cause == evidence.System.String() {
		shown.Policy, shown.Version = string(c.Policy), int32(c.PolicyVersion)
	}
	shown.Leaf, shown.Size = placeIn(d.Proof)
	return shown, nil
}

// placeIn reads the leaf's index and the tree's size from a verified proof.
func placeIn(proof string) (leaf, size int64) {
	head, signed, _ := bytes.Cut([]byte(proof), []byte("\n\n"))
	for line := range bytes.Lines(head) {
		if _, err := fmt.Sscanf(string(line), "index %d", &leaf); err == nil {
			break
		}
	}
	if c, err := tree.Peek(signed); err == nil {
		size = c.Size
	}
	return leaf, size
}

// transaction is the record of a transaction with events.
type transaction struct {
	record  *evidence.LogRecord
	content *evidence.TransactionContent
	rows    *evidence.RowsRoot
	form    evidence.TextForm
	at      replication.Position
}

// readTransaction reads a log record that must have a root of rows.
func readTransaction(value []byte) (*transaction, error) {
	record, err := evidence.ParseLogRecord(value)
	if err != nil {
		return nil, err
	}
	content, is := record.Content.(*evidence.TransactionContent)
	if !is || content.Rows == nil || len(content.Rows.Root) != tlog.HashSize || content.Rows.Count == 0 || content.Rows.Count > 1<<32 {
		return nil, errors.New("its record says nothing of single rows: the key of its month had been destroyed, a former version of lapse wrote it, or it is no transaction's")
	}
	var j struct {
		Encoding string `json:"encoding"`
	}
	if err := json.Unmarshal(value, &j); err != nil {
		return nil, err
	}
	form := evidence.UTF8Text
	if j.Encoding != "" {
		form = evidence.TextFormOf(j.Encoding)
	}
	at := replication.Position{History: record.History, Timeline: record.Timeline, Commit: content.CommitLSN}
	return &transaction{record, content, content.Rows, form, at}, nil
}

// keys returns a row's key as the database has it.
func (t *transaction) keys(columns []string, row NamedBy) (keys []evidence.Key, ok bool) {
	values, ok := row(columns)
	decode := func(text string) []byte {
		if t.form == evidence.RawText {
			return evidence.DecodeText(text)
		}
		return []byte(text)
	}
	for i, value := range values {
		key := evidence.Key{Name: string(decode(columns[i])), Null: value == nil}
		if value != nil {
			key.Value = decode(*value)
		}
		keys = append(keys, key)
	}
	return keys, ok
}

// EpochIn returns the month whose key a transaction's record commits with.
func EpochIn(record []byte) (schemas.Epoch, error) {
	t, err := readTransaction(record)
	if err != nil {
		return "", err
	}
	return t.rows.Epoch, nil
}

// ErrForgotten says that the proof store does not have what a receipt needs.
var ErrForgotten = errors.New("the commitments of its transaction are no longer in the proof store: see proofs: in lapse.yaml")

// Prove makes a deletion from a transaction's record, the commitments in the proof store, and the event's ordinal. facts needs no identity, and
// of its place only the ordinal. The caller adds the record's proof.
func Prove(value []byte, key schemas.Key, chunks Chunks, facts *Facts) (*Deletion, error) {
	t, err := readTransaction(value)
	if err != nil {
		return nil, err
	}
	all, ok := chunks.of(t)
	if !ok {
		return nil, ErrForgotten
	}
	index := -1
	for i := range all {
		if all[i].Ordinal == facts.At.Ordinal {
			index = i
		}
	}
	if index < 0 {
		return nil, errors.New("the record of its transaction does not have this event")
	}
	prover, err := tree.NewProver(int64(len(all)), int64(index))
	if err != nil {
		return nil, err
	}
	for i := range all {
		prover.Add(all[i].Hash)
	}
	path, err := prover.Proof()
	if err != nil {
		return nil, err
	}
	at := t.at
	at.Ordinal = facts.At.Ordinal
	salt := Salts(key, t.record.SystemIdentifier, t.record.DatabaseOID, at)(at.Ordinal)
	d := &Deletion{
		Record: string(value), Ordinal: at.Ordinal, Table: facts.Table, Op: facts.Op, Cause: facts.Cause, Published: string(facts.Published), Salt: salt[:],
		Index: int64(index), Path: [][]byte{},
	}
	for _, h := range path {
		d.Path = append(d.Path, h[:])
	}
	return d, nil
}

// Chunks are the chunks of one transaction in the proof store, by first ordinal. If several have the same first ordinal, at most one is
// right.
type Chunks map[uint32][][]Commitment

// Take adds a chunk.
func (c Chunks) Take(all []Commitment) {
	first := all[0].Ordinal
	if !slices.ContainsFunc(c[first], func(other []Commitment) bool { return slices.Equal(other, all) }) {
		c[first] = append(c[first], all)
	}
}

// mostTries bounds the combinations of chunks that are tried. There is more than one only if others have written to the store.
const mostTries = 10_000

// of finds the commitments that produce the transaction's root.
func (c Chunks) of(t *transaction) (all []Commitment, ok bool) {
	root := tlog.Hash(t.rows.Root)
	if t.rows.Count == 1 {
		return []Commitment{{t.rows.First, root}}, true
	}
	beginnings := slices.Sorted(maps.Keys(c))
	tries := 0
	var try func(all []Commitment) bool
	try = func(so []Commitment) bool {
		if tries++; tries > mostTries {
			return false
		}
		if uint64(len(so)) == t.rows.Count {
			var edge tree.Edge
			for i := range so {
				edge.Add(so[i].Hash)
			}
			all = so
			return edge.Root() == root
		}
		for _, first := range beginnings {
			if len(so) == 0 && first != t.rows.First || len(so) > 0 && first <= so[len(so)-1].Ordinal {
				continue
			}
			for _, chunk := range c[first] {
				n := uint64(len(so) + len(chunk))
				if n > t.rows.Count || len(chunk) < maxChunk && n < t.rows.Count {
					continue
				}
				if try(append(so[:len(so):len(so)], chunk...)) {
					return true
				}
			}
		}
		return false
	}
	ok = try(nil)
	return all, ok
}

// LogName is the log that the receipt's checkpoint names, unverified.
func (d *Deletion) LogName() string {
	_, signed, _ := bytes.Cut([]byte(d.Proof), []byte("\n\n"))
	c, err := tree.Peek(signed)
	if err != nil {
		return ""
	}
	return c.Origin
}

// SignedBy reports whether a key has signed the receipt's checkpoint.
func (d *Deletion) SignedBy(log note.Verifier) bool {
	_, signed, _ := bytes.Cut([]byte(d.Proof), []byte("\n\n"))
	_, err := tree.Open(signed, log)
	return err == nil
}
