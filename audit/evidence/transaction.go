package evidence

import (
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	"lapse/replication"
	"lapse/schemas"
)

// TransactionContent is the record of one transaction that is wholly in the topics. It is written before the next one
// begins, whose account takes the place of this one's.
type TransactionContent struct {
	Committed
	Origin   string // where its changes come from; empty if from here, and of a batch
	Verdict  Verdict
	Claim    *schemas.Claim // that verified, as far as the record has it; nil for none
	Claimed  *Claimed       // nil where there is no result of the claim's own
	Observed []Tally        // the first maxLines
	Others   []OtherTallies // what is beyond them
	Rows     *RowsRoot      // nil where the transaction has no event, and in records of former versions
}

// Committed is which transaction a record is of.
type Committed struct {
	CommitLSN  schemas.LSN
	CommitTime time.Time
	XID        uint32
}

// Claimed is what a batch's result says was deleted.
type Claimed struct {
	Picked, Deleted int64
	ByRelation      []RelationCount // the first maxLines
	OtherTables     uint64          // what is beyond them
	OtherRows       uint64
}

// OtherTallies sums up tallies of one kind.
type OtherTallies struct {
	Op             Op
	Cause          Cause
	Cascade        bool
	Tables, Events uint64
}

func newTransactionContent(tx *replication.Tx, a *Account, verdict Verdict) *TransactionContent {
	c := &TransactionContent{Committed: committed(tx), Verdict: verdict, Claim: a.Claim, Observed: a.Tallies[:min(len(a.Tallies), maxLines)]}
	if a.Batches == 0 {
		c.Origin = tx.Origin
	}
	if r := a.Result; a.Claim != nil && r != nil && r.Batch == a.Claim.Batch {
		c.Claimed = claimed(r)
	}
	for i := range a.Tallies[len(c.Observed):] {
		t := &a.Tallies[len(c.Observed)+i]
		k := slices.IndexFunc(c.Others, func(o OtherTallies) bool { return o.Op == t.Op && o.Cause == t.Cause && o.Cascade == t.Cascade })
		if k < 0 {
			k, c.Others = len(c.Others), append(c.Others, OtherTallies{Op: t.Op, Cause: t.Cause, Cascade: t.Cascade})
		}
		c.Others[k].Tables++
		c.Others[k].Events += t.Events
	}
	return c
}

// claimed is what a result says.
func claimed(r *Result) *Claimed {
	c := &Claimed{Picked: r.Picked, Deleted: r.Deleted, ByRelation: r.ByRelation[:min(len(r.ByRelation), maxLines)]}
	for _, other := range r.ByRelation[len(c.ByRelation):] {
		c.OtherTables++
		c.OtherRows += uint64(other.Rows) // a sum of what anybody may have written: it wraps around rather than turn negative
	}
	return c
}

// Kind is KindTransaction.
func (*TransactionContent) Kind() Kind { return KindTransaction }

func (c *TransactionContent) append(b []byte, form TextForm) []byte {
	b = c.Committed.append(b)
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
	b = appendOthers(append(b, ']'), c.Others)
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
		Others   []tallyJSON  `json:"others"`
		Rows     *RowsRoot    `json:"rows"`
	}
	if err = json.Unmarshal(record, &j); err != nil {
		return err
	}
	c.Origin, c.Verdict, c.Claimed, c.Rows = form.decode(j.Origin), j.Verdict, j.Claimed.claimed(), j.Rows
	if j.Claim != nil {
		c.Claim = j.Claim.claim(form)
	}
	for i := range j.Observed {
		c.Observed = append(c.Observed, j.Observed[i].tally(form))
	}
	for i := range j.Others {
		o := j.Others[i].tally(form)
		c.Others = append(c.Others, OtherTallies{Op: o.Op, Cause: o.Cause, Cascade: o.Cascade, Tables: j.Others[i].Tables, Events: o.Events})
	}
	c.Committed, err = j.committed()
	return err
}

// Events is how many events the transaction has of each cause.
func (c *TransactionContent) Events() map[string]uint64 {
	events := map[string]uint64{}
	for i := range c.Observed {
		events[c.Observed[i].Cause.String()] += c.Observed[i].Events
	}
	for i := range c.Others {
		events[c.Others[i].Cause.String()] += c.Others[i].Events
	}
	return events
}

func committed(tx *replication.Tx) Committed {
	return Committed{CommitLSN: tx.CommitLSN, CommitTime: tx.CommitTime, XID: tx.XID}
}

// Transaction is which one a record is of.
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
	b = append(b, ']')
	if c.OtherTables > 0 {
		b = appendUint(append(b, `,"others":{"tables":`...), c.OtherTables)
		b = append(appendUint(append(b, `,"rows":`...), c.OtherRows), '}')
	}
	return append(b, '}')
}

// claimedJSON is what Claimed.append writes.
type claimedJSON struct {
	Picked     int64 `json:"picked"`
	Deleted    int64 `json:"deleted"`
	ByRelation []struct {
		OID  uint32 `json:"table_oid"`
		Rows int64  `json:"rows"`
	} `json:"by_relation"`
	Others struct {
		Tables uint64 `json:"tables"`
		Rows   uint64 `json:"rows"`
	} `json:"others"`
}

func (j *claimedJSON) claimed() *Claimed {
	if j == nil {
		return nil
	}
	c := &Claimed{Picked: j.Picked, Deleted: j.Deleted, OtherTables: j.Others.Tables, OtherRows: j.Others.Rows}
	for _, counted := range j.ByRelation {
		c.ByRelation = append(c.ByRelation, RelationCount(counted))
	}
	return c
}

// appendOthers sums up what is beyond the lines that there is room for.
func appendOthers(b []byte, others []OtherTallies) []byte {
	if len(others) == 0 {
		return b
	}
	b = append(b, `,"others":[`...)
	for i := range others {
		o := &others[i]
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, `{"op":"`...), o.Op.String()...), `","cause":"`...)
		b = appendBool(append(append(b, o.Cause.String()...), `","cascade":`...), o.Cascade)
		b = appendUint(append(b, `,"tables":`...), o.Tables)
		b = append(appendUint(append(b, `,"events":`...), o.Events), '}')
	}
	return append(b, ']')
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
	}
	return append(b, '}')
}

// tallyJSON is what appendTally and appendOthers write.
type tallyJSON struct {
	Table   string `json:"table"`
	OID     uint32 `json:"table_oid"`
	Op      string `json:"op"`
	Cause   string `json:"cause"`
	Cascade bool   `json:"cascade"`
	Events  uint64 `json:"events"`
	Due     uint64 `json:"due"`
	NotDue  uint64 `json:"not_due"`
	Unknown uint64 `json:"unknown"`
	Tables  uint64 `json:"tables"`
}

func (j *tallyJSON) tally(form TextForm) Tally {
	return Tally{
		OID: j.OID, Table: form.decode(j.Table), Op: opOf(j.Op), Cause: causeOf(j.Cause), Cascade: j.Cascade, Events: j.Events,
		Judged: j.Due + j.NotDue + j.Unknown, Due: j.Due, NotDue: j.NotDue,
	}
}
