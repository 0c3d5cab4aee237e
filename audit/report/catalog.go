package report

import (
	"cmp"

	"lapse/audit/evidence"
)

// The names of rows and changes in records about the catalog: see evidence.PolicyContent and evidence.HoldContent.
const (
	rowVersion = "version"
	rowState   = "state"
	rowGate    = "gate"
	rowHalt    = "halt"
	rowOthers  = "others"
	rowHold    = "hold"

	inserted = "insert"
	restated = "restated"
)

// begin is called before the period's first record.
func (c *Count) begin() {
	for _, p := range c.policies {
		p.touched = p.touched || p.state != "" && p.state != dropped
		if v := p.versions[p.version]; v != nil && p.state != dropped {
			v.InForce = true
		}
		p.quarantine.start, p.quarantine.startStated = p.quarantine.rows(), c.stated
	}
	for _, h := range c.holds {
		h.shown = h.shown || h.State != "" && h.State != released
	}
}

// restate is called with records that repeat what is in force. For the quarantine they say all.
func (c *Count) restate(r *evidence.LogRecord) {
	if c.restated == r.Reach {
		return
	}
	c.restated, c.stated = r.Reach, true
	for _, p := range c.policies {
		clear(p.quarantine.tables)
	}
}

// policy takes a row that says which policies exist.
func (c *Count) policy(p place, r *evidence.LogRecord, content *evidence.PolicyContent) {
	clear(c.standing)
	is := content.Is
	row := cmp.Or(is, content.Was)
	if content.Op == restated {
		c.restate(r)
	}
	byHand := content.ByHand || content.Row == rowOthers || content.Row != rowGate && content.Op != inserted && content.Op != restated
	of := (*policy)(nil)
	if row != nil && content.Row != rowHalt && row.ID != 0 {
		of = c.known(row)
		of.touched = of.touched || p.within
	}
	if byHand && p.within {
		edit := HandEdit{At: At(content.CommitTime), What: "policy", Row: content.Row, Op: content.Op, XID: content.XID, Leaf: p.leaf}
		if of != nil {
			edit.Policy = of.name
			of.edited++
		} else {
			c.edited++
		}
		c.byHand.Add(edit)
	}
	switch {
	case is == nil:
	case content.Row == rowHalt:
		c.halt(p, content)
	case of == nil:
	case content.Row == rowVersion:
		of.made(p, content)
	case content.Row == rowState || content.Row == rowGate:
		of.become(c, p, content)
	}
}

// known returns the policy of a row, by its number.
func (c *Count) known(row *evidence.PolicyRow) *policy {
	of := c.policies[row.ID]
	if of == nil {
		if stray := c.byName[row.Policy]; stray != nil && stray.id < 0 { // its deletions came before any other record about it
			delete(c.policies, stray.id)
			stray.id = row.ID
			stray.start, stray.end = c.bounds.ends(row.ID)
			c.policies[row.ID], of = stray, stray
		} else {
			of = c.get(row.ID)
		}
	}
	c.call(of, row.Policy)
	return of
}

// made takes a new version.
func (p *policy) made(at place, content *evidence.PolicyContent) {
	is := content.Is
	v := p.versions[is.Version]
	if v == nil {
		v = &Version{Version: is.Version, Made: At(is.At), By: is.By, Reason: is.Reason, Leaf: at.leaf}
		p.versions[is.Version] = v
	}
	v.Table, v.Terms, v.Definition = is.Table, termsOf(is.Terms), is.Definition
	if is.Terms != nil {
		p.floors[is.Version] = is.Terms.Floors
	}
	if p.text == "" || content.Op == restated {
		p.text, p.oid = is.Table, uint32(is.TableOID)
	}
	if content.Op == restated {
		p.set(at, string(is.State), is.Version, "", "", "")
	}
}

// become takes a change of state or of the version in force.
func (p *policy) become(c *Count, at place, content *evidence.PolicyContent) {
	is := content.Is
	if v := p.versions[is.Version]; v != nil && v.Table != "" {
		p.text = v.Table
	}
	if is.TableOID != 0 {
		p.oid = uint32(is.TableOID)
	}
	state := cmp.Or(string(is.State), p.state)
	changed := state != p.state || is.Version != p.version
	when := At(is.At)
	if when == "" {
		when = At(content.CommitTime)
	}
	p.set(at, state, is.Version, when, is.By, is.Reason)
	if at.within && (changed || content.Row == rowState) {
		p.states.Add(StateChange{At: when, State: state, Version: is.Version, By: is.By, Reason: is.Reason, ByHand: content.ByHand, Leaf: at.leaf})
	}
}

// set sets the policy's state from here on.
func (p *policy) set(at place, state string, version int64, when Instant, by, reason string) {
	switch {
	case state == paused && p.state != paused:
		p.pause = &Pause{From: when, By: by, Reason: reason}
	case state != paused && p.pause != nil:
		p.pause.To = cmp.Or(when, At(at.at))
		p.pauses.Add(*p.pause) // finish removes those that ended before the period
		p.pause = nil
	}
	p.state, p.version = state, version
}

func termsOf(t *evidence.PolicyTerms) *Terms {
	if t == nil {
		return nil
	}
	schedule := ""
	switch {
	case t.Every != "":
		schedule = "every " + t.Every
	case t.Daily != "":
		schedule = "daily " + t.Daily
	case t.Cron != "":
		schedule = "cron " + t.Cron
	}
	e := &t.Expire
	return &Terms{
		Kind: e.Kind, Column: e.Column, Path: e.Path, Unit: e.Unit, Zone: e.Zone, After: e.After, Span: e.Span, TTLColumn: e.TTLColumn, TTLDefault: e.TTLDefault, Sidecar: e.Sidecar,
		Schedule: schedule, Window: t.Window, Where: t.Where, Action: t.Action, Sets: t.Sets, Evidence: t.Evidence, Latitude: t.Latitude, Owner: t.Owner, Basis: t.Basis,
	}
}

// halt takes a change of the switch for all policies.
func (c *Count) halt(p place, content *evidence.PolicyContent) {
	is := content.Is
	c.halted = is.Halted
	if p.within && content.Op != restated {
		c.halts.Add(Halt{At: At(is.At), Halted: is.Halted, Alarm: is.Alarm, By: is.By, Reason: is.Reason, Leaf: p.leaf})
	}
}

// quarantine takes the number of rows that entered or left quarantine.
func (c *Count) quarantine(p place, r *evidence.LogRecord, content *evidence.QuarantineContent) {
	if content.Op == restated {
		c.restate(r)
	}
	of := c.policies[content.PolicyID]
	if of == nil {
		of = c.get(content.PolicyID)
		c.call(of, content.Policy)
	}
	of.touched = of.touched || p.within
	q := &of.quarantine
	if content.Op == restated {
		q.tables[content.TableOID] = content.Rows
		return
	}
	q.tables[content.TableOID] += content.Entered - content.Left
	if p.within {
		q.entered, q.left = q.entered+content.Entered, q.left+content.Left
	}
}

// hold is a legal hold, as the log describes it.
type hold struct {
	Hold
	shown bool // in force in the period
	oids  map[uint32]bool
	names map[string]bool
}

// The states of a hold that keeps rows. Before it is effective, batches that had already begun may still delete.
const (
	effective = "effective"
	releasing = "releasing"
	released  = "released"
)

// hold takes a row about a legal hold.
func (c *Count) hold(p place, content *evidence.HoldContent) {
	row := cmp.Or(content.Is, content.Was)
	if row == nil || content.Op != inserted && content.Op != restated {
		number := int64(0)
		if row != nil {
			number = row.Hold
		}
		if p.within {
			c.edited++
			c.byHand.Add(HandEdit{At: At(content.CommitTime), What: "hold", Row: content.Row, Op: content.Op, Hold: number, XID: content.XID, Leaf: p.leaf})
		}
		return
	}
	h := c.holds[row.Hold]
	if h == nil {
		h = &hold{Hold: Hold{Hold: row.Hold}, oids: map[uint32]bool{}, names: map[string]bool{}}
		c.holds[row.Hold] = h
	}
	h.shown = h.shown || p.within
	if row.Table != "" {
		h.names[row.Table] = true
	}
	if row.TableOID != 0 {
		h.oids[uint32(row.TableOID)] = true
	}
	if row.Position != 0 && row.State != "requested" {
		h.Position = row.Position.String()
	}
	if content.Row == rowHold {
		h.Matter, h.Table, h.Keys, h.Digest = row.Matter, row.Table, row.Keys, row.Digest
		if content.Op == inserted {
			h.Placed, h.By, h.Hold.Reason = At(row.At), row.By, row.Reason
		}
		h.State = cmp.Or(row.State, h.State)
	}
	if content.Row == rowState {
		h.State = row.State
		if p.within {
			h.States.Add(HoldChange{At: At(row.At), State: row.State, Until: At(row.Until), By: row.By, Reason: row.Reason, Leaf: p.leaf})
		}
	}
}

// held reports whether a hold keeps rows of a table.
func (c *Count) held(root string, oid uint32) bool {
	for _, h := range c.holds {
		if (h.State == effective || h.State == releasing) && (h.names[root] || h.oids[oid]) {
			return true
		}
	}
	return false
}

// declare takes the declaration in an auditor's first heartbeat. Of those before the period only the last one counts.
func (c *Count) declare(p place, d evidence.Declared) {
	if !d.Stated || d == c.said {
		return
	}
	c.said = d
	if p.leaf < c.bounds.first {
		c.declared = List[Declaration]{}
	}
	c.declared.Add(Declaration{At: At(p.at), WALArchive: d.WALArchive, Backups: d.Backups, Leaf: p.leaf})
}
