package evidence

import (
	"time"

	"github.com/google/uuid"

	"lapse/replication"
	"lapse/schemas"
)

// finding is the result of Classify for one change.
type finding struct {
	Op      Op // None: the change is no event, and the rest is zero
	Cause   Cause
	Cascade bool // Cause is System, and a foreign key caused the deletion
}

// Tally is how many events of one kind one relation had in a transaction.
type Tally struct {
	OID     uint32
	Table   string // its name in the WAL at the first of these events
	Op      Op
	Cause   Cause
	Cascade bool
	Events  uint64

	// For rows under "evidence: due" that a batch deleted from its target, or a user from the table: how many were checked, and how many of
	// these were due, and how many not. For the rest it cannot be told.
	Judged, Due, NotDue uint64
	Late                Lateness // of a batch's rows that were due; records of former versions do not have it

	moves uint64 // user deletes that turned out to be moves; zero after splitMoves
}

// Account is what one transaction claimed and what was seen of it.
type Account struct {
	Claim     *schemas.Claim // proven by the first published change; nil if there is none
	Result    *Result        // the result that ended the claim; nil if there is none, or if it could not be read
	Batches   int            // rows of lapse.batch
	Results   int            // rows of lapse.batch_result
	Drops     int            // rows of lapse.dropped
	Drop      *PartitionDrop // the drop that the claim belongs to; nil for none
	Awaited   bool           // the transaction has rows whose confirmation is waited for: heartbeats
	Heartbeat *Heartbeat     // the last heartbeat; nil for none
	Covered   []CoveredTable // the tables that changed since the heartbeat before
	Tallies   []Tally        // in the order in which each first came

	// OwnUnverified is the first batch, row and result, or the first drop, that the deletion functions wrote in this transaction and that no tag
	// key verifies; nil if there is none.
	OwnUnverified *uuid.UUID

	catalog catalogRows // its changes of rows that say what is in force

	lastIs Judgement // of the row that was counted last and judged by judgeUsers
	last   int       // the tally that was last incremented, and usually the next one too
}

func (a *Account) reset() { *a = Account{Tallies: a.Tallies[:0]} }

func (a *Account) count(relation *replication.Relation, f finding) {
	if a.last < len(a.Tallies) && a.Tallies[a.last].is(relation.OID, f) {
		a.Tallies[a.last].Events++
		return
	}
	for i := range a.Tallies {
		if a.Tallies[i].is(relation.OID, f) {
			a.last = i
			a.Tallies[i].Events++
			return
		}
	}
	a.last = len(a.Tallies)
	a.Tallies = append(a.Tallies, Tally{
		OID: relation.OID, Table: tableName(relation), Op: f.Op, Cause: f.Cause, Cascade: f.Cascade, Events: 1,
	})
}

// judge records the judgement of the row that was counted last and, if the row was due, since when.
func (a *Account) judge(j Judgement, due, deleted time.Time) {
	t := &a.Tallies[a.last]
	t.judged(j, 1)
	if j == IsDue {
		t.Late.add(due, deleted)
	}
}

// dueAll reports whether every checked row of a batch was due.
func (a *Account) dueAll() bool {
	for i := range a.Tallies {
		if t := &a.Tallies[i]; t.Cause == System && t.Due != t.Judged {
			return false
		}
	}
	return true
}

func (t *Tally) is(oid uint32, f finding) bool {
	return t.OID == oid && t.Cause == f.Cause && t.Op == f.Op && t.Cascade == f.Cascade
}

// Recorded reports whether the transaction has a record of its own in the log, because it has events, or because it wrote into the ledger what
// a batch writes.
func (a *Account) Recorded() bool {
	return len(a.Tallies) > 0 || a.Batches > 0 || a.Results > 0 || a.Drops > 0
}

// Catalog reports whether the transaction changed rows that say what is in force, which have records of their own.
func (a *Account) Catalog() bool { return a.catalog.any() }

// Unverified reports whether anything in the transaction is not what it claims to be.
func (a *Account) Unverified() bool {
	if (a.Batches > 0 || a.Drops > 0) && a.Claim == nil || a.Drops > 1 || a.Drops > 0 && a.Drop == nil {
		return true
	}
	for i := range a.Tallies {
		if a.Tallies[i].Cause == Unverified {
			return true
		}
	}
	return false
}
