package report

import (
	"cmp"
	"slices"
	"time"

	"lapse/audit/evidence"
)

// Count is the second pass: it reads the log again, to the end of the period, and counts.
type Count struct {
	bounds *Bounds
	clock  clock
	setBy  int64 // how often the clock was set back before the period

	policies map[int64]*policy
	byName   map[string]*policy
	strays   int64 // policies known only by their deletions: their numbers are negative
	tables   map[uint32]evidence.TableChange
	dropped  map[uint32]bool // partitions that a policy dropped
	found    map[string]*table
	standing map[relation][]*policy // results of on since policies or tables last changed
	holds    map[int64]*hold
	stated   bool           // whether the quarantine's numbers are known
	restated evidence.Reach // the transaction that last restated what is in force
	begun    bool
	pending  *transaction
	rewound  []*rewound

	routes   map[int]bool
	records  int64
	coverage Coverage
	halts    List[Halt]
	halted   bool
	byHand   List[HandEdit]
	edited   int64 // edits of holds and of the switch for all policies
	declared List[Declaration]
	said     evidence.Declared // the last declaration

	run        *Run // the run that was asked about; nil before it begins
	runOutside bool // the run has deletions outside the period
}

// Count begins the second pass.
func (b *Bounds) Count() *Count {
	c := &Count{
		bounds: b, policies: map[int64]*policy{}, byName: map[string]*policy{}, tables: map[uint32]evidence.TableChange{}, dropped: map[uint32]bool{},
		found: map[string]*table{}, standing: map[relation][]*policy{}, holds: map[int64]*hold{}, stated: true, routes: map[int]bool{},
		clock: clock{limits: b.stretches},
	}
	for _, r := range b.rewinds {
		if r.within {
			c.rewound = append(c.rewound, newRewound(r))
		}
	}
	for _, g := range b.gaps {
		if g.within {
			c.coverage.Gaps.Add(newGap(g))
		}
	}
	return c
}

// place is a record's place in time.
type place struct {
	leaf   int64
	at     time.Time
	moved  bool // the record names another time
	within bool // in the period
}

// Record takes the log's next leaf; r is nil if it cannot be read.
func (c *Count) Record(leaf int64, r *evidence.LogRecord) {
	at, misdated := c.clock.place(leaf, r)
	q := &c.bounds.question
	if leaf >= c.bounds.closing.Records {
		return
	}
	p := place{leaf, at, misdated, leaf >= c.bounds.first && leaf <= c.bounds.last && !at.Before(q.From) && at.Before(q.To)}
	if leaf < c.bounds.first {
		c.setBy = c.clock.setBack
	}
	if p.within {
		c.records++
		c.coverage.SetBack = c.clock.setBack - c.setBy
	}
	if r == nil {
		c.unread(p)
		return
	}
	t, is := r.Content.(*evidence.TransactionContent)
	if is && t.Further && c.pending != nil {
		c.pending.join(t)
		return
	}
	c.settle()
	if p.within {
		c.routes[r.RouteVersion] = true
		c.coverage.take(p, r)
	}
	if !at.Before(q.To) && leaf > c.bounds.first {
		if is {
			c.ofRun(p, t.Claim, &t.Committed)
		}
		return // after the period, but covered by its closing checkpoint
	}
	if p.within && !c.begun {
		c.begun = true
		c.begin()
	}
	c.take(p, r)
}

func (c *Count) take(p place, r *evidence.LogRecord) {
	if r.Heartbeat != nil {
		c.declare(p, r.Heartbeat.Declared)
	}
	switch content := r.Content.(type) {
	case *evidence.TransactionContent:
		c.pending = newTransaction(p, r, content)
	case *evidence.DropContent:
		c.drop(p, r, content)
	case *evidence.PolicyContent:
		c.policy(p, r, content)
	case *evidence.HoldContent:
		c.hold(p, content)
	case *evidence.QuarantineContent:
		c.quarantine(p, r, content)
	case *evidence.MarkerContent:
		c.marker(p, content.Marker)
	case *evidence.CoverageContent, *evidence.OriginContent, *evidence.RouteContent, *evidence.SnapshotContent:
		if !known[r.Kind] {
			c.unread(p)
		}
	default:
		c.tableChanges(p, r)
	}
}

// known are the kinds of records that this version of the report knows. It reads others as coverage.
var known = map[evidence.Kind]bool{
	evidence.KindOrigin: true, evidence.KindRoute: true, evidence.KindTransaction: true, evidence.KindCoverage: true, evidence.KindGap: true,
	evidence.KindRewind: true, evidence.KindDrop: true, evidence.KindPolicy: true, evidence.KindHold: true, evidence.KindSnapshot: true, evidence.KindQuarantine: true,
}

func (c *Count) unread(p place) {
	if p.within {
		c.coverage.Unread++
	}
}

func (v *Coverage) take(p place, r *evidence.LogRecord) {
	if v.First == "" {
		v.First = At(p.at)
	}
	v.Last = At(p.at)
	if r.Heartbeat != nil {
		v.Heartbeats++
	}
}

func newGap(g *marked) Gap {
	m := g.marker
	return Gap{Leaf: g.leaf, At: At(m.Time), Reason: string(m.Reason), Topic: m.Topic, From: m.From.String(), To: m.To.String()}
}

// marker takes a gap or a rewind: the quarantine is then unknown until it is restated.
func (c *Count) marker(p place, m *evidence.Marker) {
	c.stated = c.stated && m.Op == evidence.Gap && m.Reason == evidence.ReasonTopic
	for _, r := range c.rewound {
		r.over = r.over || r.Leaf == p.leaf
	}
}

// tableChanges takes the changes of tables that a heartbeat found.
func (c *Count) tableChanges(p place, r *evidence.LogRecord) {
	for _, t := range r.Tables() {
		before, had := c.tables[t.OID]
		if t.Change == evidence.TableEnds {
			delete(c.tables, t.OID)
		} else {
			c.tables[t.OID] = t
		}
		clear(c.standing)
		root := cmp.Or(t.Root, t.Table)
		if had && t.Change == evidence.TableEnds {
			root = cmp.Or(before.Root, before.Table)
		}
		on := c.on(root, t.OID)
		if len(on) == 0 || !p.within {
			continue
		}
		told := t.Change == evidence.TableEnds && c.dropped[t.OID]
		c.coverage.Tables.Add(TableChange{
			Leaf: p.leaf, At: At(p.at), Table: t.Table, Root: t.Root, Change: t.Change, Former: t.Former, Told: told,
		})
		if (t.Change == evidence.TableEnds || t.Change == evidence.TableRewritten) && !told {
			for _, policy := range on {
				policy.uncovered++
			}
		}
	}
}

// rootOf returns the root table of a relation, as far as the log has named it.
func (c *Count) rootOf(oid uint32, name string) (root string, partition bool) {
	if t, found := c.tables[oid]; found {
		return cmp.Or(t.Root, t.Table), t.Root != ""
	}
	return name, false
}

// relation is a table or partition, and its root's name.
type relation struct {
	root string
	oid  uint32
}

// on returns the policies in force on a table, by its name or number.
func (c *Count) on(root string, oid uint32) (all []*policy) {
	at := relation{root, oid}
	if known, found := c.standing[at]; found {
		return known
	}
	for _, p := range c.policies {
		if p.state != dropped && (p.tableName(c) == root || p.oid == oid && oid != 0) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *policy) int { return cmp.Compare(a.id, b.id) })
	c.standing[at] = all
	return all
}
