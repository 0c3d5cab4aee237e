//go:build long

package main

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"lapse/audit/report"
	"lapse/schemas"
)

// policy is what a policy's part says.
func (c *recount) policy(t *testing.T, p *report.Policy) {
	t.Helper()
	name, path := p.Name, "/policies["+p.Name+"]"
	c.want[path+"/version"] = c.termOf(name, c.to).version
	members := []string{"by_row", "by_drop", "soft", "cascaded"}
	lines := func(path string) {
		for _, m := range members {
			c.want[path+"/"+m] += 0
		}
	}
	deleted := path + "/deleted"
	lines(deleted)
	c.want[deleted+"/rows"] += 0
	notDue, own := 0, 0
	var lates []int64
	for _, x := range c.in(func(x *rowChange) bool { return x.gone() && x.byLapse() && x.of(name) }) {
		version := c.termOf(name, x.at)
		column := x.column(name)
		for _, part := range []string{"", "/days[" + x.day() + "]", "/tables/items[public." + x.relation + "]", fmt.Sprintf("/versions[%d]", version.version)} {
			lines(deleted + part)
			c.want[deleted+part+"/"+column]++
		}
		c.want[fmt.Sprintf("%s/versions[%d]/version", deleted, version.version)] = version.version
		if column == "by_row" || column == "by_drop" {
			c.want[deleted+"/rows"]++
		}
		if column == "by_drop" {
			part := deleted + "/partitions/items[public." + x.relation + "]"
			c.want[part+"/rows"]++
			c.want[part+"/version"] = version.version
		}
		if column != "cascaded" {
			own++
			late := x.at.Sub(x.value.Add(version.after))
			lates = append(lates, int64((late+time.Second-1)/time.Second))
			if late < 0 {
				notDue++
			}
		}
	}
	if c.want[deleted+"/batches"] = int64(c.batches(name)); name == "carts" {
		c.want[deleted+"/batches"] = p.Deleted.Batches // see aside
	}
	c.timeliness(p, path, lates, own)
	c.users(p, path)
	c.zero(p, path, notDue, own)
	c.rollForward(t, p, path)
	c.states(t, p, path)
}

// timeliness is how many seconds after they were due rows went. The log has steps of it, and of policies with "evidence: due" only.
func (c *recount) timeliness(p *report.Policy, path string, lates []int64, own int) {
	path += "/timeliness"
	c.late = 0
	if p.Name != "sessions" {
		c.want[path+"/rows"], c.want[path+"/rows_not_told"] = 0, int64(own)
		if own == 0 {
			c.figure(path+"/past_deadline", 0, true)
			return
		}
		c.want[path+"/past_deadline/at_least"] = 0
		if !c.gapped {
			c.want[path+"/past_deadline/at_most"] = int64(own)
		}
		return
	}
	c.want[path+"/rows"], c.want[path+"/rows_not_told"] = int64(len(lates)), 0
	slices.Sort(lates)
	shown, last := -1, -1
	for _, late := range lates {
		if i := step(late); i != last {
			shown, last = shown+1, i
			c.want[fmt.Sprintf("%s/steps[%d]/up_to_seconds", path, shown)] = schemas.LatenessSteps[i]
			if i > 0 {
				c.want[fmt.Sprintf("%s/steps[%d]/over_seconds", path, shown)] = schemas.LatenessSteps[i-1]
			}
		}
		c.want[fmt.Sprintf("%s/steps[%d]/rows", path, shown)]++
		if late > 24*60*60 {
			c.late++
		}
	}
	c.figure(path+"/past_deadline", int(c.late), true)
	for name, percent := range map[string]int{"p50": 50, "p95": 95, "worst": 100} {
		if len(lates) == 0 || c.gapped && percent < 100 {
			continue
		}
		i := step(lates[(len(lates)*percent+99)/100-1])
		if i > 0 {
			c.want[path+"/"+name+"/over_seconds"] = schemas.LatenessSteps[i-1]
		}
		if !c.gapped {
			c.want[path+"/"+name+"/up_to_seconds"] = schemas.LatenessSteps[i]
		}
	}
}

// held reports whether the hold was on a table: for thirty days after its release it goes on.
func (c *recount) held(relation string, at time.Time) bool {
	return relation == "sessions" && at.After(c.window("hold", 0).after) && at.Before(c.window("release", 0).after.Add(30*day))
}

func (c *recount) zero(p *report.Policy, path string, notDue, own int) {
	line := func(about report.About) string { return path + "/zero[" + string(about) + "]/figure" }
	c.figure(line(report.ClaimedNotObserved), 0, true)
	c.figure(line(report.ObservedNotClaimed), 0, true)
	c.figure(line(report.DeletedNotDue), notDue, p.Name == "sessions" || own == 0)
	underHold := c.in(func(x *rowChange) bool { return x.gone() && x.byLapse() && x.of(p.Name) && c.held(x.relation, x.at) })
	if len(underHold) == 0 {
		c.figure(line(report.DeletedHeld), 0, true)
	}
	forged := len(c.in(func(x *rowChange) bool { return x.forged() && x.relation == p.Name }))
	c.figure(line(report.Unverified), forged, true)
	if forged > 0 {
		c.want[path+"/zero["+string(report.Unverified)+"]/transactions/items[public.sessions]/rows"] = int64(forged)
	}
	c.figure(line(report.BelowFloor), 0, true)
	gaps := c.happened("gap")
	c.want[line(report.Gaps)+"/value"] = gaps
	overdue := int64(0)
	if n := len(p.Snapshots.Items); n > 0 {
		s := &p.Snapshots.Items[n-1]
		due := c.dueAt(p, s.Taken.Time())
		overdue = due.overdue
		if oldest := path + "/timeliness/oldest_present"; due.due > 0 {
			i := step(due.oldest)
			if i > 0 {
				c.want[oldest+"/over_seconds"] = schemas.LatenessSteps[i-1]
			}
			c.want[oldest+"/up_to_seconds"] = schemas.LatenessSteps[i]
		}
		switch {
		case due.overdue == 0:
			c.want[line(report.Overdue)+"/value"] = 0
		case p.Latitude == "":
			c.want[line(report.Overdue)+"/at_least"], c.want[line(report.Overdue)+"/at_most"] = 0, due.overdue
		case due.quarantined > 0:
			c.want[line(report.Overdue)+"/at_least"], c.want[line(report.Overdue)+"/at_most"] = due.overdue-due.quarantined, due.overdue
		default:
			c.want[line(report.Overdue)+"/value"] = due.overdue
		}
	}
	for i := range p.Findings { // those that are of no number
		c.want[path+"/findings["+string(p.Findings[i].About)+"]/count"] = 0
	}
	counted := map[report.About]int64{
		report.Unverified: int64(forged), report.Gaps: gaps, report.Restored: c.happened("restore"), report.WasHalted: c.happened("halt") + c.happened("go on"),
		report.ClockSetBack: c.is(on(26).Add(-time.Hour)), report.Quarantined: c.inQuarantine(p.Name, c.to), report.WasPaused: int64(len(c.pauses(p.Name))),
	}
	if p.Name == "sessions" {
		counted[report.Unproven] = c.is(on(6))
	}
	if p.Latitude != "" {
		counted[report.Overdue] = overdue
	}
	counted["deleted_late"] = c.late
	for about, n := range counted {
		if n > 0 {
			c.want[path+"/findings["+string(about)+"]/count"] = n
		}
	}
}

// pauses are when a policy was paused, as far as that is in the period.
func (c *recount) pauses(policy string) (all [][2]window) {
	for n := 0; ; n++ {
		from, to := c.window("pause "+policy, n), c.window("resume "+policy, n)
		if from.what == "" {
			return all
		}
		if from.before.Before(c.to) && (to.what == "" || to.after.After(c.from)) {
			all = append(all, [2]window{from, to})
		}
	}
}

// inQuarantine is how many rows an order keeps from going: they are due, and were tried.
func (c *recount) inQuarantine(policy string, at time.Time) int64 {
	if policy == "carts" && !at.Before(c.stuck[0]) && at.Before(c.stuck[1]) {
		return 1
	}
	return 0
}

type dueCount struct {
	due, overdue, held, quarantined int64
	oldest                          int64 // seconds since the oldest of the due rows fell due
}

// dueAt counts the rows that were there at an instant, and due.
func (c *recount) dueAt(p *report.Policy, at time.Time) (n dueCount) {
	term, relations := c.termOf(p.Name, at), []string{p.Name}
	if p.Name == "readings" {
		relations = slices.Collect(maps.Keys(c.parts))
	}
	for _, relation := range relations {
		for id, value := range c.present(relation, at) {
			if value.Add(term.after).After(at) {
				continue
			}
			if (id == 1861 || id == 1862) && c.held(relation, at) {
				n.held++
				continue
			}
			n.due++
			n.oldest = max(n.oldest, int64((at.Sub(value.Add(term.after))+time.Second-1)/time.Second))
			if p.Latitude == "" || !value.Add(term.after).Add(day).After(at) {
				n.overdue++
			}
		}
	}
	n.quarantined = c.inQuarantine(p.Name, at)
	return n
}

func (c *recount) snapshot(path string, p *report.Policy, s *report.Snapshot) {
	n := c.dueAt(p, s.Taken.Time())
	c.want[path+"/version"] = c.termOf(p.Name, s.Taken.Time()).version
	c.want[path+"/due"], c.want[path+"/overdue"], c.want[path+"/held"], c.want[path+"/quarantined"] = n.due, n.overdue, n.held, n.quarantined
}

func (c *recount) rollForward(t *testing.T, p *report.Policy, path string) {
	t.Helper()
	for i := range p.Snapshots.Items {
		s := &p.Snapshots.Items[i]
		c.snapshot(path+"/snapshots/items["+string(s.Counted)+"]", p, s)
	}
	path += "/roll_forward"
	r := &p.RollForward
	if broken := c.is(c.restored)+c.is(c.unseen[1]) > 0; broken != (r.NotAssessed != "") {
		t.Errorf("%s: it is not assessed because of %q", path, r.NotAssessed)
	}
	if r.NotAssessed != "" {
		return
	}
	from, to := r.Start.Taken.Time(), r.End.Taken.Time()
	if want := c.from.Add(-12 * time.Hour); from.Sub(want).Abs() > 6*time.Hour {
		t.Errorf("%s: it begins at %s, and there was a count around %s", path, from, want)
	}
	if want := c.to.Add(-12 * time.Hour); to.Sub(want).Abs() > 6*time.Hour {
		t.Errorf("%s: it ends at %s, and there was a count around %s", path, to, want)
	}
	c.snapshot(path+"/start", p, r.Start)
	c.snapshot(path+"/end", p, r.End)
	start, end := c.dueAt(p, from), c.dueAt(p, to)
	var byPolicy, byUsers int64
	for i := range c.changes {
		x := &c.changes[i]
		if x.at.After(from) && !x.at.After(to) && x.gone() && x.of(p.Name) && x.column(p.Name) != "cascaded" {
			if x.byLapse() {
				byPolicy++
			} else {
				byUsers++
			}
		}
	}
	for member, n := range map[string]int64{
		"due_at_start": start.due, "held_at_start": start.held, "quarantined_at_start": start.quarantined, "deleted_by_policy": byPolicy, "deleted_by_users": byUsers,
		"due_at_end": end.due, "held_at_end": end.held, "quarantined_at_end": end.quarantined, "fell_due_less_refreshed": c.fellDue(p, from, to),
	} {
		c.want[path+"/"+member+"/value"] = n
	}
}

// fellDue counts row by row: those that became due and those that went before they were, less those that are no longer due.
func (c *recount) fellDue(p *report.Policy, from, to time.Time) (n int64) {
	relations := []string{p.Name}
	if p.Name == "readings" {
		relations = slices.Collect(maps.Keys(c.parts))
	}
	first, last := c.termOf(p.Name, from), c.termOf(p.Name, to)
	for _, relation := range relations {
		was, is, went := c.present(relation, from), c.present(relation, to), map[int64]bool{}
		for i := range c.changes {
			if x := &c.changes[i]; x.relation == relation && x.gone() && x.at.After(from) && !x.at.After(to) {
				went[x.id] = true
			}
		}
		due := func(rows map[int64]time.Time, id int64, term policyTerm, at time.Time) bool {
			value, there := rows[id]
			return there && !value.Add(term.after).After(at)
		}
		ids := map[int64]bool{}
		for id := range was {
			ids[id] = true
		}
		for id := range is {
			ids[id] = true
		}
		for id := range went {
			ids[id] = true
		}
		for id := range ids {
			before := due(was, id, first, from)
			switch {
			case !before && (went[id] || due(is, id, last, to)):
				n++
			case before && !went[id] && !due(is, id, last, to):
				n--
			}
		}
	}
	return n
}

func (c *recount) states(t *testing.T, p *report.Policy, path string) {
	t.Helper()
	for _, of := range c.terms[p.Name] {
		if of.version == c.termOf(p.Name, c.from).version || !of.from.Before(c.from) && of.from.Before(c.to) {
			c.want[fmt.Sprintf("%s/versions/items[%d]/version", path, of.version)] = of.version
		}
	}
	var was []string
	for i := range p.States.Items {
		s := &p.States.Items[i]
		c.given(t, "a state of "+p.Name, s.At)
		c.want[fmt.Sprintf("%s/states/items[%d]/version", path, i)] = c.termOf(p.Name, s.At.Time()).version
		was = append(was, s.State)
	}
	var paused int64
	for i, pause := range c.pauses(p.Name) {
		from, to := later(pause[0].before, c.from), c.to
		least, most := to.Sub(later(pause[0].after, c.from)), to.Sub(from)
		if pause[1].what != "" && pause[1].before.Before(c.to) {
			least, most = pause[1].before.Sub(later(pause[0].after, c.from)), pause[1].after.Sub(from)
		}
		if i >= len(p.Pauses.Items) {
			t.Errorf("%s was paused, and the report has only %d", p.Name, i)
			continue
		}
		n := p.Pauses.Items[i].Seconds
		if length := time.Duration(n) * time.Second; length < least-time.Second || length > most {
			t.Errorf("the pause of %s was from %v to %v long, and is %v in the report", p.Name, least, most, length)
		}
		c.want[fmt.Sprintf("%s/pauses/items[%d]/seconds", path, i)] = n
		paused += c.is(pause[0].before)
	}
	n := int64(0)
	for _, state := range was {
		if state == "paused" {
			n++
		}
	}
	if n != paused {
		t.Errorf("the states of %s are %q, and it was paused %d times", p.Name, was, paused)
	}
	q := path + "/quarantine"
	entered, left := int64(0), int64(0)
	if p.Name == "carts" {
		entered, left = c.is(c.stuck[0]), c.is(c.stuck[1])
	}
	c.want[q+"/entered"], c.want[q+"/left"] = entered, left
	c.want[q+"/at_start/value"], c.want[q+"/at_end/value"] = c.inQuarantine(p.Name, c.from), c.inQuarantine(p.Name, c.to)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
