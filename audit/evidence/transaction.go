package evidence

import (
	"encoding/hex"
	"encoding/json"
	"time"

	"lapse/replication"
	"lapse/schemas"
)

// TransactionContent is the record, or one of the records, of one transaction that is wholly in the topics: all say the same about the
// transaction, and each names other relations. It is written before the next transaction begins, whose account replaces this one's.
type TransactionContent struct {
	Committed
	Further  bool   // the record before belongs to the same transaction
	Origin   string // where its changes come from; empty if from here, and for a batch
	Verdict  Verdict
	Claim    *schemas.Claim // the verified claim, as far as the record has it; nil for none
	Claimed  *Claimed       // nil if the claim has no result of its own
	Observed []Tally
	Rows     *RowsRoot // nil if the transaction has no event, in records of former versions, and in further records
}

// Committed identifies the transaction of a record.
type Committed struct {
	CommitLSN  schemas.LSN
	CommitTime time.Time
	XID        uint32
}

// Claimed is what a batch's result says that was deleted.
type Claimed struct {
	Picked, Deleted int64 // in all
	ByRelation      []RelationCount
}

// newTransactionContents makes a transaction's records: one, unless it touched very many tables.
func newTransactionContents(tx *replication.Tx, a *Account, verdict Verdict) (all []Content) {
	c := &TransactionContent{Committed: committed(tx), Verdict: verdict, Claim: a.Claim, Observed: a.Tallies}
	if a.Batches == 0 {
		c.Origin = tx.Origin
	}
	if r := a.Result; a.Claim != nil && r != nil && r.Batch == a.Claim.Batch {
		c.Claimed = &Claimed{Picked: r.Picked, Deleted: r.Deleted, ByRelation: r.ByRelation}
	}
	for c != nil {
		var rest *TransactionContent
		if c.lines() > maxLines {
			c, rest = c.cut(maxLines)
		}
		all, c = append(all, c), rest
	}
	return all
}

// lines is the length of the longer of the record's lists.
func (c *TransactionContent) lines() int {
	if c.Claimed == nil {
		return len(c.Observed)
	}
	return max(len(c.Observed), len(c.Claimed.ByRelation))
}

// cut divides a record in two: the first has so many lines of each list.
func (c *TransactionContent) cut(lines int) (first, rest *TransactionContent) {
	one, other := *c, *c
	n := min(lines, len(c.Observed))
	one.Observed, other.Observed, other.Further = c.Observed[:n:n], c.Observed[n:], true
	other.Rows = nil
	if all := c.Claimed; all != nil {
		n := min(lines, len(all.ByRelation))
		one.Claimed = &Claimed{Picked: all.Picked, Deleted: all.Deleted, ByRelation: all.ByRelation[:n:n]}
		other.Claimed = &Claimed{Picked: all.Picked, Deleted: all.Deleted, ByRelation: all.ByRelation[n:]}
	}
	return &one, &other
}

func (c *TransactionContent) halves() (first, second Content) {
	if c.lines() < 2 {
		return nil, nil
	}
	return c.cut(c.lines() / 2)
}

// Kind is KindTransaction.
func (*TransactionContent) Kind() Kind { return KindTransaction }

func (c *TransactionContent) append(b []byte, form TextForm) []byte {
	b = c.Committed.append(b)
	if c.Further {
		b = append(b, `,"further":true`...)
	}
	if c.Origin != "" {
		b = appendText(append(b, `,"origin":`...), c.Origin, form)
	}
	b = append(append(append(b, `,"verdict":"`...), c.Verdict...), '"')
	if c.Claim != nil {
		b = appendClaim(append(b, `,"claim":{`...), c.Claim, form)
		b = appendUint(append(b, `,"target":`...), uint64(c.Claim.Target))
		b = append(hex.AppendEncode(append(b, `,"functions":"`...), c.Claim.Functions[:]), `"}`...)
	}
	if c.Claimed != nil {
		b = c.Claimed.append(b)
	}
	b = append(b, `,"observed":[`...)
	for i := range c.Observed {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendTally(b, &c.Observed[i], form)
	}
	b = append(b, ']')
	if c.Rows != nil {
		b = c.Rows.append(b)
	}
	return b
}

func (c *TransactionContent) parse(record []byte, form TextForm) (err error) {
	var j struct {
		committedJSON
		Origin   string       `json:"origin"`
		Verdict  Verdict      `json:"verdict"`
		Claim    *claimJSON   `json:"claim"`
		Claimed  *claimedJSON `json:"claimed"`
		Observed []tallyJSON  `json:"observed"`
		Further  bool         `json:"further"`
		Rows     *RowsRoot    `json:"rows"`
	}
	if err = json.Unmarshal(record, &j); err != nil {
		return err
	}
	c.Further, c.Origin, c.Verdict, c.Claimed, c.Rows = j.Further, form.decode(j.Origin), j.Verdict, j.Claimed.claimed(), j.Rows
	if j.Claim != nil {
		c.Claim = j.Claim.claim(form)
	}
	for i := range j.Observed {
		c.Observed = append(c.Observed, j.Observed[i].tally(form))
	}
	c.Committed, err = j.committed()
	return err
}

// Events returns the number of events of each cause in the record.
func (c *TransactionContent) Events() map[string]uint64 {
	events := map[string]uint64{}
	for i := range c.Observed {
		events[c.Observed[i].Cause.String()] += c.Observed[i].Events
	}
	return events
}

func committed(tx *replication.Tx) Committed {
	return Committed{CommitLSN: tx.CommitLSN, CommitTime: tx.CommitTime, XID: tx.XID}
}

// Transaction returns the transaction of a record.
func (c *Committed) Transaction() *Committed { return c }

func (c *Committed) written() time.Time                     { return c.CommitTime }
func (*Committed) read() (*Heartbeat, replication.Ancestry) { return nil, nil }

func (c *Committed) append(b []byte) []byte {
	b = appendLSN(append(b, `,"commit_lsn":`...), c.CommitLSN)
	b = appendInstant(append(b, `,"commit_timestamp":`...), c.CommitTime)
	return appendUint(append(b, `,"xid":`...), uint64(c.XID))
}

// committedJSON is what Committed.append writes.
type committedJSON struct {
	CommitLSN  string    `json:"commit_lsn"`
	CommitTime time.Time `json:"commit_timestamp"`
	XID        uint32    `json:"xid"`
}

func (j *committedJSON) committed() (Committed, error) {
	at, err := optionalLSN(j.CommitLSN)
	return Committed{CommitLSN: at, CommitTime: j.CommitTime, XID: j.XID}, err
}

func (c *Claimed) append(b []byte) []byte {
	b = appendInt(append(b, `,"claimed":{"picked":`...), c.Picked)
	b = appendInt(append(b, `,"deleted":`...), c.Deleted)
	b = append(b, `,"by_relation":[`...)
	for i, counted := range c.ByRelation {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendUint(append(b, `{"table_oid":`...), uint64(counted.OID))
		b = append(appendInt(append(b, `,"rows":`...), counted.Rows), '}')
	}
	return append(b, "]}"...)
}

// claimedJSON is what Claimed.append writes.
type claimedJSON struct {
	Picked     int64 `json:"picked"`
	Deleted    int64 `json:"deleted"`
	ByRelation []struct {
		OID  uint32 `json:"table_oid"`
		Rows int64  `json:"rows"`
	} `json:"by_relation"`
}

func (j *claimedJSON) claimed() *Claimed {
	if j == nil {
		return nil
	}
	c := &Claimed{Picked: j.Picked, Deleted: j.Deleted}
	for _, counted := range j.ByRelation {
		c.ByRelation = append(c.ByRelation, RelationCount(counted))
	}
	return c
}

func appendTally(b []byte, t *Tally, form TextForm) []byte {
	b = appendText(append(b, `{"table":`...), t.Table, form)
	b = appendUint(append(b, `,"table_oid":`...), uint64(t.OID))
	b = append(append(append(b, `,"op":"`...), t.Op.String()...), `","cause":"`...)
	b = append(append(b, t.Cause.String()...), '"')
	b = appendBool(append(b, `,"cascade":`...), t.Cascade)
	b = appendUint(append(b, `,"events":`...), t.Events)
	if t.Judged > 0 {
		b = appendUint(append(b, `,"due":`...), t.Due)
		b = appendUint(append(b, `,"not_due":`...), t.NotDue)
		b = appendUint(append(b, `,"unknown":`...), t.Judged-t.Due-t.NotDue)
		b = t.Late.append(b)
	}
	return append(b, '}')
}

// tallyJSON is what appendTally writes.
type tallyJSON struct {
	Table   string   `json:"table"`
	OID     uint32   `json:"table_oid"`
	Op      string   `json:"op"`
	Cause   string   `json:"cause"`
	Cascade bool     `json:"cascade"`
	Events  uint64   `json:"events"`
	Due     uint64   `json:"due"`
	NotDue  uint64   `json:"not_due"`
	Unknown uint64   `json:"unknown"`
	Late    Lateness `json:"late"`
}

func (j *tallyJSON) tally(form TextForm) Tally {
	return Tally{
		OID: j.OID, Table: form.decode(j.Table), Op: opOf(j.Op), Cause: causeOf(j.Cause), Cascade: j.Cascade, Events: j.Events,
		Judged: j.Due + j.NotDue + j.Unknown, Due: j.Due, NotDue: j.NotDue, Late: j.Late,
	}
}
