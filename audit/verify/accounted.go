package verify

import (
	"bytes"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"lapse/audit/evidence"
	"lapse/audit/rows"
	"lapse/audit/tree"
	"lapse/replication"
	"lapse/schemas"
)

// compared is a transaction that is being compared.
type compared struct {
	*Account
	leaf    int64
	record  *evidence.LogRecord
	content *evidence.TransactionContent
	at      place
	form    evidence.TextForm

	found  map[kind]uint64
	events uint64
	any    bool
	last   uint32 // ordinal of the last event

	salts  func(uint32) rows.Salt // nil: no key
	hashes tree.Edge              // computed from the events
	hidden bool                   // for one of them it cannot be computed
	stored []rows.Commitment      // of the present chunk
	read   tree.Edge              // over the store's
	next   uint32                 // the store's next chunk begins here or later
	absent bool                   // the store does not have the commitments
	number uint64                 // commitments that were taken from the store
}

func (t *compared) broken(format string, args ...any) error {
	return &Discrepancy{Leaf: t.leaf, What: fmt.Sprintf(format, args...)}
}

// prepare finds the salts, and the first chunk.
func (t *compared) prepare() error {
	root := t.content.Rows
	if root == nil {
		return nil
	}
	if len(root.Root) != tlog.HashSize {
		return t.broken("its root is no hash")
	}
	if epoch := schemas.EpochOf(t.content.CommitTime); epoch != root.Epoch {
		return t.broken("it commits in %s and names %s", epoch, root.Epoch)
	}
	if key := t.Keys[root.Epoch]; key != nil {
		if named, ok := t.route.RowsKey(root.Epoch); ok && named.Fingerprint != key.Fingerprint() {
			return t.broken("the key of %s is not the one that the log names", root.Epoch)
		}
		t.salts = rows.Salts(key, t.record.SystemIdentifier, t.record.DatabaseOID, t.position(0))
	}
	if root.Count == 1 {
		t.stored = []rows.Commitment{{Ordinal: root.First, Hash: tlog.Hash(root.Root)}}
		return nil
	}
	t.next = root.First
	return t.chunk()
}

func (t *compared) position(ordinal uint32) replication.Position {
	return replication.Position{History: t.at.history, Timeline: t.at.timeline, Commit: t.at.commit, Ordinal: ordinal}
}

// chunk takes the transaction's next chunk from the store. It skips earlier chunks, which were taken before or are duplicates.
func (t *compared) chunk() error {
	s := t.Proofs
	if s == nil {
		t.absent = true
		return nil
	}
	for {
		if err := s.fill(func(rec *schemas.Record) bool { return rec.Header(schemas.HeaderOp) == rows.OpProof }); err != nil {
			return err
		}
		if s.head == nil || s.at.Compare(t.position(t.next)) >= 0 {
			break
		}
		s.head = nil
	}
	if s.head == nil || placeOf(s.at) != t.at {
		if t.number == 0 && s.mayLack(t.at) {
			t.absent = true
			return nil
		}
		return &Discrepancy{Name: s.Name, Line: s.line, Leaf: t.leaf, What: fmt.Sprintf("commitments of the transaction at %s are missing", t.at.commit)}
	}
	_, all, ok := rows.ChunkOf(s.head)
	if !ok {
		return &Discrepancy{Name: s.Name, Line: s.line, Leaf: t.leaf, What: "the commitments cannot be read"}
	}
	t.stored, s.head = all, nil
	t.next = all[len(all)-1].Ordinal
	if t.next < 1<<32-1 {
		t.next++
	}
	return nil
}

// commitment returns the store's next commitment; ok is false if the transaction has no more.
func (t *compared) commitment() (c rows.Commitment, ok bool, err error) {
	if t.content.Rows == nil || t.absent || t.number == t.content.Rows.Count {
		return c, false, nil
	}
	if len(t.stored) == 0 {
		if err := t.chunk(); err != nil || t.absent {
			return c, false, err
		}
	}
	c, t.stored = t.stored[0], t.stored[1:]
	t.read.Add(c.Hash)
	t.number++
	return c, true, nil
}

// event compares the transaction's next event.
func (t *compared) event(s *Stream) error {
	fault := func(format string, args ...any) error {
		return &Discrepancy{Name: s.Name, Line: s.line, Leaf: t.leaf, What: fmt.Sprintf(format, args...)}
	}
	rec, ordinal := s.head, s.at.Ordinal
	k := kind{rec.Header(evidence.HeaderTable), rec.Header(schemas.HeaderOp), rec.Header(evidence.HeaderCause), rec.Header(evidence.HeaderCascade) == "true"}
	everywhere := k.op == evidence.Truncate.String() || k.op == evidence.Drop.String()
	if t.any && ordinal == t.last {
		if everywhere {
			return nil // of another partition
		}
		return fault("the event at %s is there twice", s.at)
	}
	t.any, t.last = true, ordinal
	t.events++
	t.found[k]++
	if !agrees(rec, t.route.Format) {
		return fault("the event does not say of itself what its headers say")
	}
	stored, ok, err := t.commitment()
	if err != nil {
		return err
	}
	for ok && stored.Ordinal < ordinal && t.anyMayBeGone() {
		if stored, ok, err = t.commitment(); err != nil {
			return err
		}
	}
	if ok && stored.Ordinal != ordinal {
		return fault("the record commits to an event at the ordinal %d, and this one is at %d", stored.Ordinal, ordinal)
	}
	if t.content.Rows != nil && !ok && !t.absent {
		return fault("the record commits to %d events, and this is one more", t.content.Rows.Count)
	}
	if t.salts == nil {
		return nil
	}
	if t.route.Format == evidence.FormatDebezium || bytes.Contains(rec.Value, []byte(`"hashed":[`)) {
		t.hidden, t.Hidden = true, t.Hidden+1
		return nil
	}
	facts := rows.Facts{
		SystemIdentifier: t.record.SystemIdentifier, DatabaseOID: t.record.DatabaseOID, At: s.at, Table: k.table, Op: k.op, Cause: k.cause, Identity: rec.Key,
	}
	hash := facts.Commitment(t.salts(ordinal))
	if ok && hash != stored.Hash {
		return fault("it is not the event that the record commits to")
	}
	t.hashes.Add(hash)
	t.Opened++
	return nil
}

// end compares the counts and the root.
func (t *compared) end() error {
	for more := true; more; { // events that are gone still have commitments
		var err error
		if _, more, err = t.commitment(); err != nil {
			return err
		}
	}
	if root := t.content.Rows; root != nil && !t.absent {
		if t.read.Root() != tlog.Hash(root.Root) {
			return t.broken("the commitments of the transaction at %s do not come to its root", t.at.commit)
		}
		t.Rooted++
	} else if root != nil && t.salts != nil && !t.hidden && t.events == root.Count {
		if t.hashes.Root() != tlog.Hash(root.Root) {
			return t.broken("the events of the transaction at %s are not those that it commits to", t.at.commit)
		}
		t.Rooted++
	} else if root != nil {
		t.Unrooted++
	}
	return t.counts()
}

// counts compares how many events there are of each kind.
func (t *compared) counts() error {
	want := map[kind]uint64{}
	var all uint64
	for i := range t.content.Observed {
		tally := &t.content.Observed[i]
		want[kind{string(evidence.AppendPlain(nil, tally.Table, t.form)), tally.Op.String(), tally.Cause.String(), tally.Cascade}] += tally.Events
		all += tally.Events
	}
	if root := t.content.Rows; root != nil && root.Count != all {
		return t.broken("it counts %d events and commits to %d", all, root.Count)
	} else if root == nil && all > 0 && len(t.route.RowsKeys) > 0 {
		if !t.route.Destroyed(schemas.EpochOf(t.content.CommitTime)) {
			return t.broken("it counts %d events and commits to none", all)
		}
		t.Rootless++
	}
	for k, n := range t.found {
		if n > want[k] {
			return t.broken("the record has %d events of %s (%s, %s), and the topics have %d", want[k], k.table, k.op, k.cause, n)
		}
	}
	for k, n := range want {
		if t.found[k] == n {
			continue
		}
		if !t.mayBeGone(k) {
			return t.broken("the record has %d events of %s (%s, %s), and the topics have %d", n, k.table, k.op, k.cause, t.found[k])
		}
		t.Forgotten++
		return nil
	}
	t.Transactions++
	return nil
}

// mayBeGone reports whether events of a kind may be missing without anybody having removed them on purpose.
func (t *compared) mayBeGone(k kind) bool { return t.goneFrom(k.cause == evidence.System.String()) }

func (t *compared) anyMayBeGone() bool { return t.goneFrom(true) || t.goneFrom(false) }

// mayLack reports whether events of a transaction may have been before those that the partition has.
func (s *Stream) mayLack(at place) bool {
	return s.Cut && !s.Within && (!s.begun || at.compare(s.first) <= 0)
}

func (t *compared) goneFrom(system bool) bool {
	for _, s := range t.Events {
		if (s.Topic == t.System) == system && s.mayLack(t.at) {
			return true
		}
	}
	for topic, upTo := range t.Lost {
		if (topic == t.System) == system && (evidence.Reach{History: t.at.history, Timeline: t.at.timeline, LSN: t.at.commit}).Before(upTo) {
			return true
		}
	}
	return false
}
