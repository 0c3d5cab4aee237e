package evidence

import (
	"encoding/hex"
	"time"

	"lapse/replication"
)

// transactionContent is the record of one transaction that is wholly in the topics. It is written before the next one
// begins, whose account takes the place of this one's.
type transactionContent struct {
	Tx      *replication.Tx
	Account *Account
	Verdict Verdict
}

// Kind is KindTransaction.
func (*transactionContent) Kind() Kind           { return KindTransaction }
func (c *transactionContent) written() time.Time { return c.Tx.CommitTime }
func (*transactionContent) read() *Heartbeat     { return nil }

func (c *transactionContent) append(b []byte, form TextForm) []byte {
	tx, a := c.Tx, c.Account
	b = appendLSN(append(b, `,"commit_lsn":`...), tx.CommitLSN)
	b = appendInstant(append(b, `,"commit_timestamp":`...), tx.CommitTime)
	b = appendUint(append(b, `,"xid":`...), uint64(tx.XID))
	if tx.Origin != "" && a.Batches == 0 {
		b = appendText(append(b, `,"origin":`...), tx.Origin, form)
	}
	b = append(append(append(b, `,"verdict":"`...), c.Verdict...), '"')
	if a.Claim != nil {
		b = appendClaimed(b, a, form)
	}
	b = append(b, `,"observed":[`...)
	named := a.Tallies[:min(len(a.Tallies), maxLines)]
	for i := range named {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendTally(b, &named[i], form)
	}
	return appendOthers(append(b, ']'), a.Tallies[len(named):])
}

// maxLines bounds how many relations a transaction's record names. A line is shorter than a kilobyte; one transaction may
// delete from thousands of partitions.
const maxLines = 512

// appendOthers sums up what is beyond the lines that there is room for.
func appendOthers(b []byte, rest []Tally) []byte {
	if len(rest) == 0 {
		return b
	}
	type kind struct {
		op      Op
		cause   Cause
		cascade bool
	}
	var kinds []kind // in the order in which each first came
	tables, events := map[kind]uint64{}, map[kind]uint64{}
	for i := range rest {
		k := kind{rest[i].Op, rest[i].Cause, rest[i].Cascade}
		if tables[k] == 0 {
			kinds = append(kinds, k)
		}
		tables[k]++
		events[k] += rest[i].Events
	}
	b = append(b, `,"others":[`...)
	for i, k := range kinds {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, `{"op":"`...), k.op.String()...), `","cause":"`...)
		b = appendBool(append(append(b, k.cause.String()...), `","cascade":`...), k.cascade)
		b = appendUint(append(b, `,"tables":`...), tables[k])
		b = append(appendUint(append(b, `,"events":`...), events[k]), '}')
	}
	return append(b, ']')
}

// appendClaimed writes the claim that verified, with the digest of what ran, and, if the result is its own, what it says
// was deleted.
func appendClaimed(b []byte, a *Account, form TextForm) []byte {
	b = appendClaim(append(b, `,"claim":{`...), a.Claim, form)
	b = appendUint(append(b, `,"target":`...), uint64(a.Claim.Target))
	b = append(hex.AppendEncode(append(b, `,"functions":"`...), a.Claim.Functions[:]), `"}`...)
	r := a.Result
	if r == nil || r.Batch != a.Claim.Batch {
		return b
	}
	b = appendInt(append(b, `,"claimed":{"picked":`...), r.Picked)
	b = appendInt(append(b, `,"deleted":`...), r.Deleted)
	b = append(b, `,"by_relation":[`...)
	named := r.ByRelation[:min(len(r.ByRelation), maxLines)]
	for i, c := range named {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendUint(append(b, `{"table_oid":`...), uint64(c.OID))
		b = append(appendInt(append(b, `,"rows":`...), c.Rows), '}')
	}
	b = append(b, ']')
	if rest := r.ByRelation[len(named):]; len(rest) > 0 {
		var rows uint64 // a sum of what anybody may have written: it wraps around rather than turn negative
		for _, c := range rest {
			rows += uint64(c.Rows)
		}
		b = appendUint(append(b, `,"others":{"tables":`...), uint64(len(rest)))
		b = append(appendUint(append(b, `,"rows":`...), rows), '}')
	}
	return append(b, '}')
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
