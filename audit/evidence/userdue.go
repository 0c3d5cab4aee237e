package evidence

import (
	"encoding/json"
	"reflect"
	"slices"

	"lapse/replication"
	"lapse/schemas"
)

// Whether a row that a user deleted was due is judged by the rule that the last heartbeat found (lapse.covered.due): that of the version in
// force, of the policy that deletes from the table, if it has "evidence: due". The instant that counts is the transaction's commit, and the
// value that counts is the one that the row had when it was deleted, no matter who wrote it.
//
// A row is unknown, and never guessed, if the log does not have its value; if it is past due and the policy has a condition (where), which
// the log does not show; and while the rule is unsettled. It is unsettled
//
//	from the beginning of a log, a gap in it, or a rewind    policies may have changed unseen
//	from the end of a transaction that makes a version of    the rule of before may be over
//	a policy, or changes which one is in force
//	in that transaction                                      which of the two was in force depends on the order
//
// until a heartbeat that was written while no policy was being changed. All of these have records in the log, so a start in the middle knows
// by them what the auditor knew that came by first: see settles.

// dueOf reads lapse.covered.due; nil if there is none. By one that cannot be read, every row is unknown.
func dueOf(text string) *schemas.Due {
	if text == "" {
		return nil
	}
	due, err := schemas.ParseDue([]byte(text))
	if err != nil {
		return &schemas.Due{}
	}
	return due
}

// sameDue reports whether users' deletions are judged alike.
func (c *CoveredTable) sameDue(other *CoveredTable) bool {
	return c.Where == other.Where && reflect.DeepEqual(c.Due, other.Due)
}

// appendDue writes by what users' deletions are judged, if they are.
func (c *CoveredTable) appendDue(b []byte, form TextForm) []byte {
	if c.Due == nil {
		return b
	}
	b = appendText(append(b, `,"due":{"column":`...), c.Due.Column, form)
	b = append(append(append(b, `,"as":"`...), c.Due.As...), '"')
	if len(c.Due.After) > 0 {
		after, _ := json.Marshal(c.Due.After) // numbers
		b = append(append(b, `,"after":`...), after...)
	}
	b = append(b, '}')
	if c.Where {
		b = append(b, `,"where":true`...)
	}
	return b
}

// judgeUsers judges a row that a user deleted, by its table's rule.
func (a *Assembler) judgeUsers(change *replication.Change, table *named) {
	is := CannotTell
	at := slices.IndexFunc(change.Relation.Columns, func(c replication.Column) bool { return c.Name == table.due.Column })
	if !a.unsettled && at >= 0 && at < len(change.Old) && change.Old[at].Kind == replication.Text {
		is = Judge(table.due, change.Old[at].Bytes, a.tx.CommitTime)
	}
	if is == IsDue && table.where {
		is = CannotTell
	}
	a.classifier.account.judgeUsers(is)
}

// judgeUsers records the judgement of the row that was counted last.
func (a *Account) judgeUsers(j Judgement) {
	a.lastIs = j
	a.Tallies[a.last].judged(j, 1)
}

// judged adds rows with a judgement, or takes them away.
func (t *Tally) judged(j Judgement, rows int64) {
	t.Judged += uint64(rows)
	switch j {
	case IsDue:
		t.Due += uint64(rows)
	case IsNotDue:
		t.NotDue += uint64(rows)
	}
}

// unsettle makes every row that was judged by a table's rule unknown: the transaction changed policies.
func (a *Account) unsettle() {
	for i := range a.Tallies {
		if t := &a.Tallies[i]; t.Cause == User {
			t.Due, t.NotDue = 0, 0
		}
	}
}

// changesRules reports whether records may bring another version into force, or put one out of force.
func changesRules(records []Content) bool {
	return slices.ContainsFunc(records, func(c Content) bool {
		p, is := c.(*PolicyContent)
		return is && p.changesRules()
	})
}

func (c *PolicyContent) changesRules() bool {
	switch c.Row {
	case policyVersion:
		return c.Op != rowRestated
	case policyState:
		return c.Op != rowInserted || c.Is == nil || c.Is.State == schemas.Dropped
	case policyGate:
		return c.Op != rowUpdated || c.Is == nil || c.Was == nil || !c.Is.sameRule(c.Was)
	default:
		return c.Row == policyOthers
	}
}

// sameRule reports whether two rows of lapse.gate have the same version in force, of the same table.
func (r *PolicyRow) sameRule(other *PolicyRow) bool {
	return r.Version == other.Version && r.TableOID == other.TableOID && r.Soft == other.Soft && (r.State == schemas.Dropped) == (other.State == schemas.Dropped)
}

// Settling is what a record says of how users' deletions are judged from its position on.
type Settling byte

// What a record may say. Of a transaction's records the last one counts that says something.
const (
	SaysNothing Settling = iota
	Settled              // they are those of the heartbeat
	Unsettled            // they are not known
)

// Settling returns what a record says of the rules.
func (r *LogRecord) Settling() Settling {
	switch c := r.Content.(type) {
	case *CoverageContent:
		if c.Heartbeat != nil {
			return c.Heartbeat.settles()
		}
	case *MarkerContent:
		if c.Marker.Topic == "" {
			return Unsettled
		}
	case *PolicyContent:
		if c.changesRules() {
			return Unsettled
		}
	}
	return SaysNothing
}

// settles says whether the rules are those of a heartbeat that shows no gap. A heartbeat that was written while policies were being changed
// found those of before or after, and says nothing: the change has its own record.
func (h *Heartbeat) settles() Settling {
	if h.Unsettled {
		return SaysNothing
	}
	return Settled
}
