package report

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// endCount is how close to the period's end its last count must be.
const endCount = 48 * time.Hour

// judge fills in the lines that must be zero, the known lateness, and the verdict.
func (c *Count) judge(p *policy, r *Policy) {
	for _, about := range ZeroLines {
		line := ZeroLine{About: about, Figure: c.figure(p, r, about)}
		if z := p.zeros[about]; z != nil {
			line.Transactions = z.all
		}
		r.Zero = append(r.Zero, line)
	}
	r.Timeliness = c.timeliness(p, r)
	r.Findings = c.findings(p, r)
	r.Verdict = Pass
	if len(r.Findings) > 0 {
		r.Verdict = r.Findings[0].Grade
	}
}

// figure is one of the lines that must be zero.
func (c *Count) figure(p *policy, r *Policy, about About) Figure {
	n := int64(0)
	if z := p.zeros[about]; z != nil {
		n = z.n
	}
	f := c.read(n)
	unless := func(why Reason) Figure {
		f := NotAssessed(why)
		f.AtLeast = &n
		return f
	}
	switch about {
	case ClaimedNotObserved, ObservedNotClaimed:
		if p.noResult > 0 {
			return unless(ResultMissing)
		}
	case DeletedNotDue:
		switch {
		case p.unjudged > 0:
			return unless(EvidenceClaimed)
		case p.dropRows > 0:
			return unless(DropsNotSent)
		case p.unknown > 0:
			return unless(SomeUnknown)
		}
	case DeletedHeld:
		if p.heldRows {
			return NotAssessed(KeysNotInLog)
		}
	case Overdue:
		return c.overdue(p, r)
	case Gaps:
		return Number(c.coverage.Gaps.Len())
	case BelowFloor:
		return c.belowFloor(r)
	}
	return f
}

// overdue is the number of rows that the period's last count found late by more than the latitude.
func (c *Count) overdue(p *policy, r *Policy) Figure {
	if p.state == dropped {
		return Number(0) // nothing is due any more
	}
	if !c.countedAtEnd(p) {
		return NotAssessed(NoSnapshot)
	}
	s := &p.end.Snapshot
	least, most := max(s.Overdue-s.Quarantined, 0), s.Overdue
	switch {
	case most == 0:
		return Number(0)
	case r.Latitude == "":
		least = 0
		return Figure{NotAssessed: NoLatitude, AtLeast: &least, AtMost: &most}
	case s.Quarantined == 0:
		return Number(most)
	}
	return Figure{NotAssessed: QuarantineInside, AtLeast: &least, AtMost: &most}
}

// countedAtEnd reports whether a count near the period's end is of the version that was in force then.
func (c *Count) countedAtEnd(p *policy) bool {
	return p.end != nil && p.end.Version == p.version && !p.end.Taken.Time().Before(c.bounds.question.To.Add(-endCount))
}

// findings returns the reasons for the verdict, the worst first; those of one grade in the order of the lines.
func (c *Count) findings(p *policy, r *Policy) (all []Finding) {
	for i := range r.Zero {
		line := &r.Zero[i]
		f, n := &line.Figure, line.Figure.Least()
		switch {
		case line.About == Gaps && n > 0:
			all = append(all, Finding{Grade: Unknown, About: Gaps, Count: n})
		case n > 0:
			all = append(all, Finding{Grade: Fail, About: line.About, Count: n})
		case f.NotAssessed == NoSnapshot || f.NotAssessed == InGap: // other findings already say so
		case f.NotAssessed != "":
			all = append(all, Finding{Grade: Unknown, About: line.About, Why: f.NotAssessed})
		}
	}
	add := func(grade Grade, about About, n int64, is bool) {
		if is {
			all = append(all, Finding{Grade: grade, About: about, Count: n})
		}
	}
	add(Unknown, NoEndSnapshot, 0, p.state != dropped && !c.countedAtEnd(p))
	add(Unknown, TablesUncovered, p.uncovered, p.uncovered > 0)
	add(Unknown, NotDescribed, 0, len(p.versions) == 0)
	add(Warn, Restored, int64(len(c.rewound)), len(c.rewound) > 0)
	add(Warn, EditedByHand, p.edited+c.edited, p.edited+c.edited > 0)
	rows := p.quarantine.rows()
	add(Warn, Quarantined, rows, rows > 0)
	late := r.Timeliness.PastDeadline.Least()
	add(Warn, DeletedLate, late, late > 0)
	add(Warn, NotArmed, 0, p.state != armed && p.state != dropped)
	add(Warn, WasPaused, r.Pauses.Len(), r.Pauses.Len() > 0)
	halts := c.halts.Len()
	add(Warn, WasHalted, halts, halts > 0 || c.halted)
	add(Warn, ClockSetBack, c.coverage.SetBack, c.coverage.SetBack > 0)
	add(Warn, Misdated, c.coverage.Misdated.Len(), c.coverage.Misdated.Len() > 0)
	add(Warn, Unproven, p.unproven, p.unproven > 0)
	add(Warn, OtherRecords, c.coverage.Unread, c.coverage.Unread > 0)
	order := []Grade{Fail, Unknown, Warn}
	slices.SortStableFunc(all, func(a, b Finding) int { return slices.Index(order, a.Grade) - slices.Index(order, b.Grade) })
	return all
}

// floorsOf returns the floors of the versions in force in the period.
func (c *Count) floorsOf(p *policy) (all List[RetainedAtLeast]) {
	for _, number := range slices.Sorted(maps.Keys(p.floors)) {
		v := p.versions[number]
		if v == nil || !v.InForce && v.Leaf < c.bounds.first {
			continue
		}
		for _, floor := range p.floors[number] {
			all.Add(RetainedAtLeast{Version: number, Table: floor.Of, Least: floor.Least, Below: c.below(p, v, floor.Least)})
		}
	}
	return all
}

// below is the number of rows that a version deleted before they were as old as a floor. If the version has a column and an interval that is
// at least as long as the floor, due rows were old enough.
func (c *Count) below(p *policy, v *Version, least string) Figure {
	under := p.under[v.Version]
	if under == nil || under.ByRow+under.ByDrop+under.Soft == 0 {
		return c.read(0)
	}
	notDue := p.zeros[DeletedNotDue]
	t := v.Terms
	if t == nil || t.Kind != "" || t.TTLColumn != "" || p.unjudged+p.unknown+p.dropRows > 0 || notDue != nil {
		return NotAssessed(FloorNotCompared)
	}
	least1, _, ok1 := hoursOf(t.After)
	_, most2, ok2 := hoursOf(least)
	if !ok1 || !ok2 || least1 < most2 && t.After != least {
		return NotAssessed(FloorNotCompared)
	}
	return c.read(0)
}

func (c *Count) belowFloor(r *Policy) Figure {
	if r.Floors.More > 0 {
		return NotAssessed(FloorNotCompared)
	}
	for i := range r.Floors.Items {
		if f := r.Floors.Items[i].Below; f.Value == nil {
			return f
		}
	}
	return c.read(0)
}

// hoursOf is the smallest and largest number of hours in an interval: a month has 28 to 31 days, and a clock change may add or remove an hour of
// a day. ok is false unless the interval consists of whole numbers with units.
func hoursOf(text string) (least, most float64, ok bool) {
	words := strings.Fields(text)
	if len(words) == 0 || len(words)%2 != 0 {
		return 0, 0, false
	}
	for i := 0; i < len(words); i += 2 {
		n, err := strconv.ParseUint(words[i], 10, 32)
		unit, found := hoursOfUnit[strings.TrimSuffix(words[i+1], "s")]
		if err != nil || !found {
			return 0, 0, false
		}
		least, most = least+float64(n)*unit.least-unit.clock, most+float64(n)*unit.most+unit.clock
	}
	return least, most, true
}

var hoursOfUnit = map[string]struct{ least, most, clock float64 }{
	"second": {1. / 3600, 1. / 3600, 0}, "minute": {1. / 60, 1. / 60, 0}, "hour": {1, 1, 0}, "day": {24, 24, 1}, "week": {7 * 24, 7 * 24, 1},
	"mon": {28 * 24, 31 * 24, 1}, "month": {28 * 24, 31 * 24, 1}, "year": {365 * 24, 366 * 24, 1},
}
