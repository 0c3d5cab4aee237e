package report

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"lapse/audit/evidence"
	"lapse/schemas"
)

const (
	armed   = string(schemas.Armed)
	paused  = string(schemas.Paused)
	dropped = string(schemas.Dropped)
)

// policy collects the counts of one policy.
type policy struct {
	id       int64 // negative: see Count.strays
	name     string
	oid      uint32
	text     string // the table as the version names it
	state    string
	version  int64
	versions map[int64]*Version
	floors   map[int64][]evidence.FloorTerms
	touched  bool // it existed in the period

	deleted    Deleted
	days       map[string]*Day
	from       map[string]*TableDeleted
	under      map[int64]*VersionDeleted
	zeros      map[About]*zeroLine
	judged     int64           // rows for which the auditor recorded whether they were due, or that it could not tell
	unjudged   int64           // rows for which it recorded nothing
	unknown    int64           // judged rows for which it could not tell
	late       map[int64]*late // by version
	dropRows   int64
	heldRows   bool // it deleted from a table with a hold
	noResult   int64
	uncovered  int64
	users      users
	start, end *snapshot
	roll       roll

	states     List[StateChange]
	pauses     List[Pause]
	pause      *Pause
	quarantine quarantine
	edited     int64
	unproven   int64 // transactions that touched its table with a claim that does not verify
}

// zeroLine is a line that must be zero, as far as it comes from transactions.
type zeroLine struct {
	n   int64
	all List[Transaction]
}

// users counts what others did to a policy's table.
type users struct {
	deleted, truncates, moves, unverified int64
	judged, due, notDue                   int64 // of those deleted
	held                                  bool  // from a table with a hold
}

// roll counts the rows that went between two counts.
type roll struct {
	policy, users int64
	truncated     bool
}

type quarantine struct {
	tables        map[int64]int64 // by number
	start         int64
	startStated   bool
	entered, left int64
}

// counts are numbers of rows that one policy deleted.
type counts struct{ ByRow, ByDrop, Soft, Cascaded int64 }

// get returns the policy with a number.
func (c *Count) get(id int64) *policy {
	p := c.policies[id]
	if p == nil {
		p = &policy{
			id: id, versions: map[int64]*Version{}, floors: map[int64][]evidence.FloorTerms{}, days: map[string]*Day{}, from: map[string]*TableDeleted{},
			under: map[int64]*VersionDeleted{}, zeros: map[About]*zeroLine{}, late: map[int64]*late{}, quarantine: quarantine{tables: map[int64]int64{}, startStated: true},
		}
		p.start, p.end = c.bounds.ends(id)
		c.policies[id] = p
		clear(c.standing)
	}
	return p
}

// named returns the policy that has a name at this place of the log. A policy that the log has not mentioned before gets its own number.
func (c *Count) named(name string) *policy {
	p := c.byName[name]
	if p == nil {
		c.strays--
		p = c.get(c.strays)
		c.call(p, name)
	}
	return p
}

func (c *Count) call(p *policy, name string) {
	if name == "" {
		return
	}
	p.name = name
	c.byName[name] = p
}

// tableName is the table's latest name in the log.
func (p *policy) tableName(c *Count) string {
	if t, found := c.tables[p.oid]; found && p.oid != 0 {
		return t.Table
	}
	return p.text
}

// add counts rows that the policy deleted.
func (p *policy) add(n counts, version int64, table, root string, at time.Time) {
	d := &p.deleted
	d.Rows += n.ByRow + n.ByDrop
	d.ByRow, d.ByDrop, d.Soft, d.Cascaded = d.ByRow+n.ByRow, d.ByDrop+n.ByDrop, d.Soft+n.Soft, d.Cascaded+n.Cascaded
	name := at.UTC().Format(time.DateOnly)
	day := p.days[name]
	if day == nil {
		day = &Day{Day: name}
		p.days[name] = day
	}
	day.ByRow, day.ByDrop, day.Soft, day.Cascaded = day.ByRow+n.ByRow, day.ByDrop+n.ByDrop, day.Soft+n.Soft, day.Cascaded+n.Cascaded
	from := p.from[table]
	if from == nil {
		from = &TableDeleted{Table: table, Root: root}
		p.from[table] = from
	}
	from.ByRow, from.ByDrop, from.Soft, from.Cascaded = from.ByRow+n.ByRow, from.ByDrop+n.ByDrop, from.Soft+n.Soft, from.Cascaded+n.Cascaded
	under := p.under[version]
	if under == nil {
		under = &VersionDeleted{Version: version}
		p.under[version] = under
	}
	under.ByRow, under.ByDrop, under.Soft, under.Cascaded = under.ByRow+n.ByRow, under.ByDrop+n.ByDrop, under.Soft+n.Soft, under.Cascaded+n.Cascaded
}

// zero adds to a line that must be zero.
func (p *policy) zero(about About, t Transaction) {
	line := p.zeros[about]
	if line == nil {
		line = &zeroLine{}
		p.zeros[about] = line
	}
	line.n += t.Rows
	line.all.Add(t)
}

// byOthers counts what others did to the policy's table.
func (p *policy) byOthers(t *transaction, tally *evidence.Tally, held bool) {
	n := int64(tally.Events)
	switch {
	case tally.Op == evidence.Move:
		p.users.moves += n
	case tally.Op == evidence.Truncate:
		p.users.truncates += n
		p.users.held = p.users.held || held
	default:
		p.users.deleted += n
		p.users.judged, p.users.due, p.users.notDue = p.users.judged+int64(tally.Judged), p.users.due+int64(tally.Due), p.users.notDue+int64(tally.NotDue)
		p.users.held = p.users.held || held
	}
	if tally.Cause == evidence.Unverified {
		p.users.unverified += n
		p.zero(Unverified, t.named(tally.Table, n))
	}
}

// rolled counts rows that went between the policy's two counts.
func (p *policy) rolled(leaf int64, at time.Time, xid uint32, byPolicy, byUsers int64) {
	if p.between(leaf, at, xid) {
		p.roll.policy, p.roll.users = p.roll.policy+byPolicy, p.roll.users+byUsers
	}
}

func (p *policy) rolledTruncate(leaf int64, at time.Time, xid uint32) {
	p.roll.truncated = p.roll.truncated || p.between(leaf, at, xid)
}

func (p *policy) between(leaf int64, at time.Time, xid uint32) bool {
	return p.start != nil && p.end != nil && !p.start.sees(leaf, at, xid) && p.end.sees(leaf, at, xid)
}

// filled returns what was deleted, in order.
func (p *policy) filled() Deleted {
	d := p.deleted
	for _, day := range slices.Sorted(maps.Keys(p.days)) {
		d.Days = append(d.Days, *p.days[day])
	}
	for _, name := range slices.Sorted(maps.Keys(p.from)) {
		d.Tables.Add(*p.from[name])
	}
	for _, version := range slices.Sorted(maps.Keys(p.under)) {
		d.Versions = append(d.Versions, *p.under[version])
	}
	return d
}

// rows is the number of rows.
func (q *quarantine) rows() (n int64) {
	for _, rows := range q.tables {
		n += rows
	}
	return n
}

func byNameAndID(a, b *policy) int {
	return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.id, b.id))
}
