package report

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// Report returns the report. The error is a *PeriodError if a requested policy is not in the log.
func (c *Count) Report() (*Report, error) {
	c.settle()
	b := c.bounds
	r := &Report{
		Kind: kind, Schema: Schema, Period: Period{From: At(b.question.From), To: At(b.question.To)}, Log: b.origins(), Only: slices.Sorted(slices.Values(b.question.Only)),
		Coverage: c.coverage, Halts: c.halts, ByHand: c.byHand,
		Residue: Residue{VacuumHorizon: NotAssessed(VacuumNotLogged), Declared: c.declared},
	}
	r.Only = slices.Compact(r.Only)
	r.Log.Records, r.Log.Routes = c.records, slices.Sorted(maps.Keys(c.routes))
	all, err := c.chosen()
	if err == nil {
		r.Run, err = c.askedRun()
	}
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		r.Policies = append(r.Policies, c.finish(p))
	}
	for _, h := range c.shownHolds() {
		for i, p := range all {
			if !h.touches(c, p) {
				continue
			}
			r.Policies[i].Holds = append(r.Policies[i].Holds, h.Hold.Hold)
			if !slices.Contains(h.Policies, p.name) {
				h.Policies = append(h.Policies, p.name)
			}
		}
		r.Holds.Add(h.Hold)
	}
	r.Tables = c.shownTables(all)
	for _, w := range c.rewound {
		policies := slices.SortedFunc(maps.Keys(w.policies), byNameAndID)
		for _, p := range policies {
			if of := w.policies[p]; slices.Contains(all, p) && of.BroughtBack > 0 {
				of.Policy = p.name
				w.Policies = append(w.Policies, *of)
			}
		}
		r.Rewinds.Add(w.Rewind)
	}
	return r, nil
}

// chosen returns the report's policies, in order.
func (c *Count) chosen() (all []*policy, err error) {
	var names []string
	for _, p := range c.policies {
		if p.touched {
			all = append(all, p)
			names = append(names, p.name)
		}
	}
	slices.SortFunc(all, byNameAndID)
	only := c.bounds.question.Only
	if len(only) == 0 {
		return all, nil
	}
	slices.Sort(names)
	for _, name := range only {
		if !slices.Contains(names, name) {
			return nil, noPeriod("the log has no policy %q in the period; it has: %s", name, cmp.Or(strings.Join(slices.Compact(names), ", "), "none"))
		}
	}
	return slices.DeleteFunc(all, func(p *policy) bool { return !slices.Contains(only, p.name) }), nil
}

// shownTables returns the tables of the policies, and those from which they deleted.
func (c *Count) shownTables(all []*policy) (tables []Table) {
	shown := map[string][]string{} // the tables' policies; a table may have none
	show := func(table string, policies ...string) { shown[table] = append(shown[table], policies...) }
	for _, p := range all {
		if name := p.tableName(c); name != "" {
			show(name, p.name)
		}
		for _, t := range p.from {
			show(cmp.Or(t.Root, t.Table))
		}
	}
	if len(c.bounds.question.Only) == 0 {
		for name := range c.found {
			show(name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(shown)) {
		t := Table{Table: name}
		if found := c.found[name]; found != nil {
			t = found.Table
			for _, day := range slices.Sorted(maps.Keys(found.days)) {
				if d := *found.days[day]; d != (TableDay{Day: day}) {
					t.Days = append(t.Days, d)
				}
			}
		}
		t.Policies = slices.Compact(slices.Sorted(slices.Values(shown[name])))
		tables = append(tables, t)
	}
	return tables
}

// shownHolds returns the holds that were in force in the period.
func (c *Count) shownHolds() (all []*hold) {
	for _, number := range slices.Sorted(maps.Keys(c.holds)) {
		if h := c.holds[number]; h.shown {
			all = append(all, h)
		}
	}
	return all
}

// touches reports whether a hold is on a policy's table, or on one from which the policy deleted.
func (h *hold) touches(c *Count, p *policy) bool {
	if h.names[p.tableName(c)] || h.oids[p.oid] && p.oid != 0 {
		return true
	}
	for name, t := range p.from {
		if h.names[name] || h.names[t.Root] && t.Root != "" {
			return true
		}
	}
	for oid := range h.oids {
		if t, found := c.tables[oid]; found && t.Root != "" && t.Root == p.tableName(c) {
			return true
		}
	}
	return false
}

// finish returns the report's part on the policy, without its holds.
func (c *Count) finish(p *policy) Policy {
	r := Policy{ID: max(p.id, 0), Name: p.name, Table: p.tableName(c), State: p.state, Version: p.version, Deleted: p.filled(), States: p.states}
	if v := p.versions[p.version]; v != nil && v.Terms != nil {
		t := v.Terms
		r.Evidence, r.Action, r.Owner, r.Basis, r.Latitude = t.Evidence, t.Action, t.Owner, t.Basis, t.Latitude
	}
	judged := false
	for _, number := range slices.Sorted(maps.Keys(p.versions)) {
		if v := p.versions[number]; v.InForce || v.Leaf >= c.bounds.first {
			r.Versions.Add(*v)
			judged = judged || v.Terms != nil && v.Terms.Evidence == "due" && v.Terms.Action != "soft"
		}
	}
	r.Pauses = c.pausesOf(p)
	r.Quarantine = Quarantine{AtStart: NotAssessed(NotStated), Entered: p.quarantine.entered, Left: p.quarantine.left, AtEnd: NotAssessed(NotStated)}
	if p.quarantine.startStated {
		r.Quarantine.AtStart = Number(p.quarantine.start)
	}
	if c.stated {
		r.Quarantine.AtEnd = Number(p.quarantine.rows())
	}
	for _, s := range c.bounds.snapshots[p.id] {
		if s.within || s == p.start {
			r.Snapshots.Add(s.Snapshot)
		}
	}
	r.Floors = c.floorsOf(p)
	r.Users = c.usersOf(p, judged)
	r.RollForward = c.rollForward(p)
	c.judge(p, &r)
	return r
}

// pausesOf returns the pauses that reach into the period.
func (c *Count) pausesOf(p *policy) (all List[Pause]) {
	q := &c.bounds.question
	ended := p.pauses.Items
	if p.pause != nil {
		ended = append(slices.Clone(ended), *p.pause)
	}
	for _, pause := range ended {
		from, to := q.From, q.To
		if t := pause.From.Time(); t.After(from) {
			from = t
		}
		if pause.To != "" && pause.To.Time().Before(to) {
			to = pause.To.Time()
		}
		if !to.After(q.From) || !from.Before(q.To) {
			continue
		}
		pause.Seconds = int64(max(to.Sub(from), 0) / time.Second)
		all.Add(pause)
	}
	all.More += p.pauses.More
	return all
}

// usersOf counts what others did. judged: by the rule of one of the policy's versions their deletions are judged.
func (c *Count) usersOf(p *policy, judged bool) Users {
	u := &p.users
	held := Number(0)
	if u.held {
		held = NotAssessed(KeysNotInLog)
	}
	r := Users{
		Deleted: c.read(u.deleted), Truncates: c.read(u.truncates), Moves: c.read(u.moves), Unverified: c.read(u.unverified), Held: held,
		Due: u.figure(u.due, judged), NotDue: u.figure(u.notDue, judged),
	}
	if u.truncates > 0 {
		r.Deleted = NotAssessed(Truncated)
		r.Deleted.AtLeast = &u.deleted
	}
	if c.gapped() {
		for _, f := range []*Figure{&r.Due, &r.NotDue, &r.Held} {
			if f.Value != nil || f.AtLeast != nil {
				*f = Figure{NotAssessed: InGap, AtLeast: f.seen()}
			}
		}
	}
	return r
}

// figure makes a figure of a number of rows that others deleted. Of some the log may not say whether they belong to it.
func (u *users) figure(rows int64, judged bool) Figure {
	unknown := u.deleted - u.due - u.notDue
	switch {
	case u.deleted+u.truncates == 0:
		return Number(0)
	case !judged || u.judged == 0:
		return NotAssessed(UsersNotJudged)
	case u.truncates > 0:
		return Figure{NotAssessed: Truncated, AtLeast: &rows}
	case unknown > 0:
		most := rows + unknown
		return Figure{NotAssessed: UsersPartlyJudged, AtLeast: &rows, AtMost: &most}
	}
	return Number(rows)
}

// seen is what was seen of a figure, if that is more than nothing.
func (f *Figure) seen() *int64 {
	if n := f.Least(); n > 0 {
		return &n
	}
	return nil
}

// gapped reports whether no auditor read part of the period's write-ahead log.
func (c *Count) gapped() bool {
	for _, g := range c.bounds.gaps {
		if g.within && !g.topic() {
			return true
		}
	}
	return false
}

// read makes a figure of a number of seen things: a lower bound if part of the log was not read.
func (c *Count) read(n int64) Figure {
	if c.gapped() {
		f := NotAssessed(InGap)
		f.AtLeast = &n
		return f
	}
	return Number(n)
}

// rollForward makes the balance between two counts.
func (c *Count) rollForward(p *policy) RollForward {
	why := NoSnapshot
	if p.start != nil && p.end != nil && p.start != p.end {
		why = c.bounds.between(p.start, p.end)
	}
	if why != "" {
		f := NotAssessed(why)
		return RollForward{
			NotAssessed: why, DueStart: f, HeldStart: f, QuarantineStart: f, ByPolicy: f, ByUsers: f, DueEnd: f, HeldEnd: f, QuarantineEnd: f, FellDue: f,
		}
	}
	s, e := &p.start.Snapshot, &p.end.Snapshot
	r := RollForward{
		Start: s, End: e, DueStart: Number(s.Due), HeldStart: Number(s.Held), QuarantineStart: Number(s.Quarantined), ByPolicy: Number(p.roll.policy), ByUsers: Number(p.roll.users),
		DueEnd: Number(e.Due), HeldEnd: Number(e.Held), QuarantineEnd: Number(e.Quarantined),
		FellDue: Number(e.Due + e.Held - s.Due - s.Held + p.roll.policy + p.roll.users),
	}
	if p.roll.truncated {
		r.ByUsers, r.FellDue = NotAssessed(Truncated), NotAssessed(Truncated)
		r.ByUsers.AtLeast = &p.roll.users
	}
	return r
}
