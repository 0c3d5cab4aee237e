package report

import (
	"cmp"
	"slices"
	"time"

	"lapse/audit/evidence"
)

// transaction is a transaction some of whose records are not read yet: one that touched very many tables has several.
type transaction struct {
	place
	record   *evidence.LogRecord
	content  evidence.TransactionContent
	claimed  map[uint32]int64 // rows by relation; nil if it has no result of its own
	observed []evidence.Tally
}

func newTransaction(p place, r *evidence.LogRecord, content *evidence.TransactionContent) *transaction {
	t := &transaction{place: p, record: r, content: *content}
	t.join(content)
	return t
}

// join adds another record of the transaction.
func (t *transaction) join(content *evidence.TransactionContent) {
	t.observed = append(t.observed, content.Observed...)
	if content.Claimed == nil {
		return
	}
	if t.claimed == nil {
		t.claimed = map[uint32]int64{}
	}
	for _, r := range content.Claimed.ByRelation {
		t.claimed[r.OID] += r.Rows
	}
}

// named is the transaction's entry in a list.
func (t *transaction) named(table string, rows int64) Transaction {
	return Transaction{Leaf: t.leaf, XID: t.content.XID, Commit: t.content.CommitLSN.String(), At: At(t.content.CommitTime), Table: table, Rows: rows}
}

// events is the number of its events.
func (t *transaction) events() (n int64) {
	for i := range t.observed {
		n += int64(t.observed[i].Events)
	}
	return n
}

// settle counts the transaction after its last record.
func (c *Count) settle() {
	t := c.pending
	if t == nil {
		return
	}
	c.pending = nil
	if t.within {
		c.coverage.Transactions++
		if t.moved {
			c.coverage.Misdated.Add(t.named("", t.events()))
		}
	}
	var by *policy
	if t.content.Claim != nil {
		by = c.named(string(t.content.Claim.Policy))
		by.touched = by.touched || t.within
	}
	unverified, rows := int64(0), int64(0)
	for i := range t.observed {
		tally := &t.observed[i]
		c.tally(t, by, tally)
		if tally.Cause == evidence.Unverified {
			unverified, rows = unverified+1, rows+int64(tally.Events)
		}
	}
	c.runTransaction(t)
	if by != nil && t.within {
		by.deleted.Batches++
		by.reconcile(t)
	}
	if t.within && t.content.Verdict == evidence.Unclaimed && (unverified > 0 || len(t.observed) == 0) {
		table := ""
		if len(t.observed) == 1 {
			table = t.observed[0].Table
		}
		c.coverage.Unproven.Add(t.named(table, rows))
		c.unproven(t)
	}
}

// unproven counts the transaction for each policy whose table it touched, or for the whole log if it touched none.
func (c *Count) unproven(t *transaction) {
	var touched []*policy
	for i := range t.observed {
		root, _ := c.rootOf(t.observed[i].OID, t.observed[i].Table)
		for _, p := range c.on(root, t.observed[i].OID) {
			if !slices.Contains(touched, p) {
				touched = append(touched, p)
				p.unproven++
			}
		}
	}
}

// tally counts the events of one kind of one relation.
func (c *Count) tally(t *transaction, by *policy, tally *evidence.Tally) {
	root, partition := c.rootOf(tally.OID, tally.Table)
	n := int64(tally.Events)
	if tally.Cause == evidence.System && by != nil {
		c.system(t, by, tally, root, partition)
		return
	}
	on := c.on(root, tally.OID)
	if tally.Op != evidence.Move && tally.Op != evidence.Truncate {
		for _, p := range on {
			p.rolled(t.leaf, t.content.CommitTime, t.content.XID, 0, n)
		}
		c.rewind(t.record.Reach, nil, n, t.place)
	}
	if tally.Op == evidence.Truncate {
		for _, p := range on {
			p.rolledTruncate(t.leaf, t.content.CommitTime, t.content.XID)
		}
	}
	if !t.within {
		return
	}
	found := c.table(root)
	day := found.day(t.at)
	switch {
	case tally.Op == evidence.Move:
		found.Moves += n
	case tally.Op == evidence.Truncate:
		found.Truncates += n
	case tally.Cause == evidence.User:
		found.User, day.User = found.User+n, day.User+n
	}
	if tally.Cause == evidence.Unverified {
		found.Unverified, day.Unverified = found.Unverified+n, day.Unverified+n
	}
	held := c.held(root, tally.OID)
	for _, p := range on {
		p.byOthers(t, tally, held)
	}
}

// system counts what a policy's batch did to one relation. For a dropped partition the next record has the number of rows.
func (c *Count) system(t *transaction, by *policy, tally *evidence.Tally, root string, partition bool) {
	if tally.Op == evidence.Drop {
		return
	}
	n := int64(tally.Events)
	if !tally.Cascade {
		by.rolled(t.leaf, t.content.CommitTime, t.content.XID, n, 0)
		c.rewind(t.record.Reach, by, n, t.place)
	}
	if !t.within {
		return
	}
	var counts counts
	found := c.table(root)
	day := found.day(t.at)
	switch {
	case tally.Cascade:
		counts.Cascaded = n
	case tally.Op == evidence.SoftDelete:
		counts.Soft = n
	default:
		counts.ByRow = n
	}
	if tally.Op == evidence.SoftDelete {
		found.Soft, day.Soft = found.Soft+n, day.Soft+n
	} else {
		found.System, day.System = found.System+n, day.System+n
	}
	if !partition {
		root = ""
	}
	by.add(counts, int64(t.content.Claim.PolicyVersion), tally.Table, root, t.at)
	if !tally.Cascade {
		by.judged += int64(tally.Judged)
		by.unjudged += n - int64(tally.Judged)
		by.unknown += int64(tally.Judged - tally.Due - tally.NotDue)
		if tally.Judged > 0 {
			by.tookLate(int64(t.content.Claim.PolicyVersion), tally)
		}
		if tally.NotDue > 0 {
			by.zero(DeletedNotDue, t.named(tally.Table, int64(tally.NotDue)))
		}
	}
	by.heldRows = by.heldRows || c.held(cmp.Or(root, tally.Table), tally.OID)
}

// reconcile compares a batch's claim with its events.
func (p *policy) reconcile(t *transaction) {
	claimed, observed, only := int64(0), int64(0), ""
	seen := map[uint32]int64{}
	unverified, notDue, drops := false, false, false
	for i := range t.observed {
		tally := &t.observed[i]
		unverified = unverified || tally.Cause == evidence.Unverified
		notDue = notDue || tally.Cause == evidence.System && tally.Due != tally.Judged
		drops = drops || tally.Op == evidence.Drop
		if tally.Cause == evidence.System && tally.Op != evidence.Drop {
			seen[tally.OID] += int64(tally.Events)
			only = tally.Table
		}
	}
	if len(t.observed) > 1 {
		only = ""
	}
	if t.content.Verdict == evidence.Match {
		return
	}
	for oid, n := range t.claimed {
		claimed += max(0, n-seen[oid])
	}
	for oid, n := range seen {
		observed += max(0, n-t.claimed[oid])
	}
	if claimed > 0 {
		p.zero(ClaimedNotObserved, t.named(only, claimed))
	}
	if observed > 0 {
		p.zero(ObservedNotClaimed, t.named(only, observed))
	}
	if claimed == 0 && observed == 0 && !unverified && !notDue && (t.claimed == nil || !drops) {
		p.noResult++
	}
}

// drop counts a partition that a policy dropped.
func (c *Count) drop(p place, r *evidence.LogRecord, content *evidence.DropContent) {
	d := content.Drop
	c.dropped[d.Relation.OID] = true
	by := c.named(string(d.Claim.Policy))
	by.touched = by.touched || p.within
	by.rolled(p.leaf, content.CommitTime, content.XID, d.Rows, 0)
	c.rewind(r.Reach, by, d.Rows, p)
	if !p.within {
		return
	}
	root := cmp.Or(d.Root, content.Table)
	found := c.table(root)
	day := found.day(p.at)
	found.ByDrop, day.ByDrop = found.ByDrop+d.Rows, day.ByDrop+d.Rows
	by.add(counts{ByDrop: d.Rows}, int64(d.Claim.PolicyVersion), content.Table, d.Root, p.at)
	by.dropRows += d.Rows
	if r := c.ofRun(p, d.Claim, &content.Committed); r != nil {
		r.ByDrop += d.Rows
	}
	by.heldRows = by.heldRows || c.held(root, d.Relation.OID)
	by.deleted.Partitions.Add(DroppedPartition{
		Table: content.Table, Rows: d.Rows, Oldest: At(d.Oldest), Newest: At(d.Newest), Version: int64(d.Claim.PolicyVersion), XID: content.XID, At: At(content.CommitTime), Leaf: p.leaf,
	})
}

// table returns the counts of a table.
type table struct {
	Table
	days map[string]*TableDay
}

func (c *Count) table(root string) *table {
	t := c.found[root]
	if t == nil {
		t = &table{Table: Table{Table: root}, days: map[string]*TableDay{}}
		c.found[root] = t
	}
	return t
}

func (t *table) day(at time.Time) *TableDay {
	name := at.UTC().Format(time.DateOnly)
	d := t.days[name]
	if d == nil {
		d = &TableDay{Day: name}
		t.days[name] = d
	}
	return d
}

// rewound is a rewind in the period, with the deletions that it undid.
type rewound struct {
	Rewind
	from, to evidence.Reach
	over     bool // its record has been read: what follows is in the database that the log continues with
	policies map[*policy]*RewoundPolicy
}

func newRewound(m *marked) *rewound {
	r := &rewound{from: m.marker.From, to: m.marker.To, policies: map[*policy]*RewoundPolicy{}}
	r.Leaf, r.At, r.Reason, r.From, r.To = m.leaf, At(m.marker.Time), string(m.marker.Reason), r.from.String(), r.to.String()
	return r
}

// rewind counts rows that a policy or, if by is nil, another session deleted: for the rewinds that undid the deletion, and for those before
// it.
func (c *Count) rewind(at evidence.Reach, by *policy, rows int64, p place) {
	for _, r := range c.rewound {
		back := !r.over && r.from.Before(at) && at.Compare(r.to) <= 0
		switch {
		case by == nil:
			if back {
				r.Users += rows
			}
			continue
		case !back && !r.over, r.over && !p.within:
			continue
		}
		of := r.policies[by]
		if of == nil {
			of = &RewoundPolicy{}
			r.policies[by] = of
		}
		if back {
			of.BroughtBack += rows
			continue
		}
		of.DeletedSince += rows
		if of.FirstSince == "" {
			of.FirstSince = At(p.at)
		}
		of.LastSince = At(p.at)
	}
}
