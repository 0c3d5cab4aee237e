package evidence

import (
	"time"

	"github.com/google/uuid"

	"lapse/replication"
	"lapse/schemas"
)

// claimTolerance is the longest time between a claim's start and its commit.
const claimTolerance = 24 * time.Hour

// state is the state of a transaction's classification.
//
//	                 ┌─ batch row that proves itself ──▶ SYSTEM ──┐ batch_result, or another batch row
//	start ── first ──┼─ batch row that does not ──────────────────┴──▶ UNVERIFIED, to the end
//	                 └─ anything else ──────────────────▶ USER ───── a batch row ──▶ UNVERIFIED, to the end
//
// The row of a drop is a batch row and its result in one: the drop is what it claims, and everything after it is unverified. A row about a
// changed quarantine has no effect: a batch may write one before its own row, if other rows refer to due ones.
type state byte

const (
	stateStart state = iota
	stateSystem
	stateUser
	stateUnverified
)

// classifier tells system, user and unverified deletes apart. It is a pure function of the source, the tag keys and one transaction's
// changes in order, with no clock and no catalog: the same WAL with the same keys gives the same answer. Only its counts per relation grow.
//
// Not safe for concurrent use.
type classifier struct {
	source Source
	keys   []schemas.Key

	tx      *replication.Tx
	state   state
	claim   schemas.Claim
	soft    bool         // the claim is for setting a column of the target's rows, not for deleting
	hashed  bool         // the events under the claim have hashes instead of keys
	values  []string     // the columns that the target's events have as values, not as keys
	due     *schemas.Due // how to judge whether a row of the target was due; nil: not judged
	account Account
	setting uint32     // the target of an unverified batch of this transaction that sets a column; 0 for none
	suspect *uuid.UUID // the last batch of this transaction that no key verifies; nil for none
}

// newClassifier makes a classifier for the WAL of source. A claim verifies if any of keys verifies it.
func newClassifier(source Source, keys []schemas.Key) *classifier {
	return &classifier{source: source, keys: keys}
}

// Begin starts a transaction, and drops everything about the one before.
func (c *classifier) Begin(tx *replication.Tx) {
	c.tx, c.state, c.suspect, c.setting = tx, stateStart, nil, 0
	c.account.reset()
}

// Classify classifies the transaction's next change.
func (c *classifier) Classify(change *replication.Change) finding {
	first := c.state == stateStart
	if change.Relation.Schema == schemas.LedgerSchema && c.account.catalog.take(change) {
		if first {
			c.state = stateUser
		}
		return finding{} // it has a record of its own
	}
	if change.Op == replication.OpInsert && change.Relation.Schema == schemas.LedgerSchema {
		if change.Relation.Name == schemas.DroppedTable {
			return c.drop(change, first)
		}
		c.ledger(change, first)
		if change.Relation.Name == schemas.QuarantineTable {
			return finding{}
		}
	}
	if c.state == stateStart {
		c.state = stateUser
	}
	finding := c.find(change)
	if finding.Op != None {
		c.account.count(change.Relation, finding)
	}
	return finding
}

// ledger handles a row of the ledger. Such rows are no events, but affect the changes that follow.
func (c *classifier) ledger(change *replication.Change, first bool) {
	switch change.Relation.Name {
	case schemas.BatchTable:
		c.account.Batches++
		// Only the first published change can start the state SYSTEM. A batch row anywhere else was not written by a deletion function,
		// whatever its MAC says: it may be a valid row, copied after somebody's own deletes.
		var claim schemas.Claim
		ours, verifies := c.examine(change, &claim, (*schemas.Claim).Verify)
		if first && verifies {
			c.claim, c.state = claim, stateSystem
			c.soft, c.hashed = parseFlag(change, softColumn), parseFlag(change, hashedColumn)
			c.values, c.due = parseValues(change), parseDue(change)
			c.account.Claim = &c.claim
			return
		}
		c.state, c.setting = stateUnverified, 0
		if ours && !verifies {
			c.suspect = &claim.Batch
			if parseFlag(change, softColumn) {
				c.setting = claim.Target
			}
		}
	case schemas.ResultTable:
		c.account.Results++
		c.setting = 0
		// The functions write a ledger row and its result. A forger has no reason to write the result.
		if batch, ok := parseBatch(change); ok && c.suspect != nil && batch == *c.suspect && c.account.OwnUnverified == nil {
			c.account.OwnUnverified = c.suspect
		}
		if c.state == stateSystem {
			c.account.Result = parseResult(change)
			c.state = stateUnverified
		}
	case schemas.CoveredTable:
		if row, ok := parseCovered(change); ok {
			c.account.Covered = append(c.account.Covered, row)
		}
	case schemas.QuarantineTable:
		c.account.catalog.quarantined(change)
	case schemas.SnapshotTable:
		c.account.catalog.snapshot(change)
	case schemas.RestatedTable:
		c.account.catalog.restate(change)
	case schemas.HeartbeatTable:
		c.account.Awaited = true
		if h := parseHeartbeat(change); h != nil {
			c.account.Heartbeat = h
		}
	}
}

// drop handles the row of a dropped partition. As with a batch, only the first published change can be the policy's. If the row proves
// nothing, it is no event, and its contents are not repeated anywhere. Only the dropping functions may write such rows, so a row of this
// transaction that no key verifies is theirs.
func (c *classifier) drop(change *replication.Change, first bool) finding {
	var claim schemas.Claim
	ours, verifies := c.examine(change, &claim, (*schemas.Claim).VerifyDrop)
	c.account.Drops++
	c.state, c.setting = stateUnverified, 0
	switch {
	case ours && !verifies && c.account.OwnUnverified == nil:
		c.account.OwnUnverified = &claim.Batch
	case first && verifies:
		d := parseDrop(change, &claim)
		if d == nil {
			break
		}
		c.claim = claim
		c.account.Claim, c.account.Drop = &c.claim, d
		f := finding{Op: Drop, Cause: System}
		c.account.count(d.Relation, f)
		return f
	}
	return finding{}
}

// examine reads the claim of a batch row, or of a drop's row, which has another MAC. ours: it names this database and this transaction, as
// the deletion functions ensure. verifies: it also names this system, history and timeline, and one of the keys signed it. A row that
// cannot be read is neither, and no error: otherwise anyone who may write such a row could stop the audit.
func (c *classifier) examine(
	change *replication.Change, claim *schemas.Claim, verify func(*schemas.Claim, schemas.Key, []byte) bool,
) (ours, verifies bool) {
	mac, readable := parseClaim(change, claim)
	if !readable && !parseIdentity(change, claim) {
		return false, false
	}
	if !readable {
		claim.Target = 0 // it may have been read, or not
	}
	if claim.DatabaseOID != c.source.DatabaseOID || uint32(claim.XID) != c.tx.XID ||
		c.tx.CommitTime.Sub(claim.StartedAt).Abs() > claimTolerance {
		return false, false
	}
	if !readable || claim.SystemIdentifier != c.source.SystemIdentifier {
		return true, false
	}
	for _, key := range c.keys {
		if verify(claim, key, mac) {
			// Under a former history or timeline it is a valid row that proves nothing here. It does not show a foreign key.
			here := schemas.History(claim.History) == c.tx.History && schemas.Timeline(claim.Timeline) == c.tx.Timeline
			return here, here
		}
	}
	return true, false
}

func (c *classifier) find(change *replication.Change) finding {
	var op Op
	switch change.Op {
	case replication.OpDelete:
		op = Delete
	case replication.OpTruncate:
		op = Truncate
	case replication.OpUpdate:
		switch oid := change.Relation.OID; {
		case c.state == stateSystem && c.soft && oid == c.claim.Target:
			return finding{Op: SoftDelete, Cause: System}
		case c.state == stateUnverified && oid == c.setting && oid != 0:
			return finding{Op: SoftDelete, Cause: Unverified} // written with the executor's login, without the key
		}
		return finding{} // other updates do not matter here
	default:
		return finding{}
	}
	switch {
	case c.state == stateUser:
		return finding{Op: op, Cause: User}
	case c.state != stateSystem, op == Truncate, c.soft:
		// A claim is for deleting rows that are due. No function of Lapse truncates, so a TRUNCATE under a claim comes from a trigger; and
		// so does a delete under a claim that only sets a column.
		return finding{Op: op, Cause: Unverified}
	case change.Relation.OID == c.claim.Target:
		return finding{Op: op, Cause: System}
	case c.claim.Covers(change.Relation.OID):
		return finding{Op: op, Cause: System, Cascade: true}
	default:
		return finding{Op: op, Cause: Unverified}
	}
}

// Claim returns the transaction's verified claim while it covers its deletes; nil in any other state.
func (c *classifier) Claim() *schemas.Claim {
	if c.state != stateSystem {
		return nil
	}
	return &c.claim
}

// Account returns what the transaction claimed and what was seen so far. The classifier owns it; it is valid until the next Begin.
func (c *classifier) Account() *Account { return &c.account }

// set fills e with the event of a change. Its keys point into the stream's buffer and are valid as long as the change's bytes are.
func (e *Event) set(tx *replication.Tx, change *replication.Change, f finding, claim *schemas.Claim, table string) {
	*e = Event{
		Tx: tx, Ordinal: change.Ordinal, Op: f.Op, Cause: f.Cause, Cascade: f.Cascade,
		TableOID: change.Relation.OID, Table: table, Relation: change.Relation, Keys: e.Keys[:0], Values: e.Values[:0],
		TruncateCascade: change.Cascade, RestartIdentity: change.RestartIdentity,
	}
	if f.Cause == System {
		e.Claim = claim
	}
	switch {
	case f.Op == Truncate:
	case f.Op == SoftDelete && change.Old == nil:
		// An update that does not change the key sends no old row: the new row has the key.
		if e.Full = change.Relation.ReplicaIdentity == 'f'; !e.Full {
			e.name(change.Relation, change.New)
		}
	case !change.OldIsKey:
		// With REPLICA IDENTITY FULL the whole row was sent, with every column marked as part of the key.
		e.Full = true
	default:
		e.name(change.Relation, change.Old)
	}
}

// name takes the columns that name the row, or none of them. A table's owner can cause deletions without them, and must not stop the audit
// with it: before 18, PostgreSQL publishes no generated column, and reports no key if the key consists only of generated columns.
func (e *Event) name(relation *replication.Relation, values []replication.Value) {
	for i := range relation.Columns {
		column := &relation.Columns[i]
		if !column.Key || i >= len(values) {
			continue
		}
		switch value := &values[i]; value.Kind {
		case replication.Text:
			e.Keys = append(e.Keys, Key{Name: column.Name, Value: value.Bytes, Column: column})
		case replication.Null:
			e.Keys = append(e.Keys, Key{Name: column.Name, Null: true, Column: column})
		default:
			e.Keys, e.Nameless = e.Keys[:0], true
			return
		}
	}
	e.Nameless = len(e.Keys) == 0
}
