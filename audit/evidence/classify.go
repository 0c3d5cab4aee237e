package evidence

import (
	"time"

	"github.com/google/uuid"

	"lapse/replication"
	"lapse/schemas"
)

// claimTolerance is what may lie between a claim's start and its commit.
const claimTolerance = 24 * time.Hour

// state is the state of a transaction's classification.
//
//	                 ┌─ batch row that proves itself ──▶ SYSTEM ──┐ batch_result, or another batch row
//	start ── first ──┼─ batch row that does not ──────────────────┴──▶ UNVERIFIED, to the end
//	                 └─ anything else ──────────────────▶ USER ───── a batch row ──▶ UNVERIFIED, to the end
//
// A row of a drop is as a batch row and its result: the drop is what it says, and all after it is unverified. A row that says that the
// quarantine changed decides nothing: a batch writes one before its own row where other rows refer to some that are due.
type state byte

const (
	stateStart state = iota
	stateSystem
	stateUser
	stateUnverified
)

// classifier tells system, user and unverified deletes apart. It is a pure function of the source, the tag keys and one
// transaction's changes in their order: no clock, no catalog. The same WAL with the same keys gives the same answer. It
// holds counts per relation and nothing else that grows.
//
// Not safe for concurrent use.
type classifier struct {
	source Source
	keys   []schemas.Key

	tx      *replication.Tx
	state   state
	claim   schemas.Claim
	soft    bool         // the claim is one to set a column of the target's rows, and to delete none
	hashed  bool         // the events under the claim have hashes in place of keys
	values  []string     // the columns that events of the target have as values; none: they are told as keys
	due     *schemas.Due // how to tell whether a row of the target was due; nil: not asked
	account Account
	setting uint32     // the target of rows that are set under a batch of this transaction's that no key verifies; 0 for none
	suspect *uuid.UUID // the last batch that is this transaction's and that no key verifies; nil for none
}

// newClassifier makes a classifier for the WAL of source. A claim verifies if it does so under any of keys.
func newClassifier(source Source, keys []schemas.Key) *classifier {
	return &classifier{source: source, keys: keys}
}

// Begin starts a transaction. What was known of the one before is gone.
func (c *classifier) Begin(tx *replication.Tx) {
	c.tx, c.state, c.suspect, c.setting = tx, stateStart, nil, 0
	c.account.reset()
}

// Classify takes the transaction's next change.
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

// ledger takes a row of the ledger. No row of it is an event; what matters is what it makes of those that follow.
func (c *classifier) ledger(change *replication.Change, first bool) {
	switch change.Relation.Name {
	case schemas.BatchTable:
		c.account.Batches++
		// Only the first published change that decides can open SYSTEM. A batch row anywhere else was not written by a deletion
		// function, whatever its MAC says: it may be a true row, copied after somebody's own deletes.
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

// drop takes a row of a partition that was dropped. Nothing but the first published change is the policy's, as with a batch; what
// such a row says that proves nothing is repeated nowhere, and no event. Nobody but the dropping functions may write one, so one of
// this transaction's that no key verifies is theirs.
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

// examine reads the claim of a batch row, or of a drop's row, whose MAC is verified otherwise. ours: it names this
// database and this transaction, as the deletion functions ensure. verifies: it names this system, history and timeline
// too, and one of the keys signed it. A row that cannot be read is neither, and is not an error: else anybody who may write
// such a row could stop the audit.
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
			// Under a former history or timeline it is a true row that proves nothing here. Nobody else's key made it.
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
			return finding{Op: SoftDelete, Cause: Unverified} // by the executor's login, without the key
		}
		return finding{} // who else updates a row, and what, is nobody's concern here
	default:
		return finding{}
	}
	switch {
	case c.state == stateUser:
		return finding{Op: op, Cause: User}
	case c.state != stateSystem, op == Truncate, c.soft:
		// A claim is one to delete rows that are due. Nothing of Lapse truncates, so a TRUNCATE under a claim is
		// somebody's trigger; and so is a delete where rows are only set.
		return finding{Op: op, Cause: Unverified}
	case change.Relation.OID == c.claim.Target:
		return finding{Op: op, Cause: System}
	case c.claim.Covers(change.Relation.OID):
		return finding{Op: op, Cause: System, Cascade: true}
	default:
		return finding{Op: op, Cause: Unverified}
	}
}

// Claim is what the transaction proved to be, as long as its deletes are covered by it; nil in any other state.
func (c *classifier) Claim() *schemas.Claim {
	if c.state != stateSystem {
		return nil
	}
	return &c.claim
}

// Account is what the transaction claimed and what was seen of it so far. It is the classifier's own: valid until the
// next Begin.
func (c *classifier) Account() *Account { return &c.account }

// set makes e the event of a change. Its keys are part of the stream's buffer and valid as long as the change is.
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
		// An update that leaves the key alone sends no old row: the new one has the key.
		if e.Full = change.Relation.ReplicaIdentity == 'f'; !e.Full {
			e.name(change.Relation, change.New)
		}
	case !change.OldIsKey:
		// REPLICA IDENTITY FULL: what was sent is the row itself, and every column of it says that it is of the key.
		e.Full = true
	default:
		e.name(change.Relation, change.Old)
	}
}

// name takes the columns that name the row, or none of them. A table's owner can have rows deleted without them, and must
// not stop the audit with it: before 18, PostgreSQL publishes no generated column, and reports no key for a key of
// generated columns only.
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
