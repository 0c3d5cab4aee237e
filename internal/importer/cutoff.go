package importer

import (
	"fmt"

	"lapse/planner/expiry"
	"lapse/schemas"
)

// due is the time at which a statement's condition lets a row go.
type due struct {
	of     moment // the row's moment, plus all that the condition adds before it compares it with now
	clocks bool   // the session's time zone affects which rows are due
	notes  []string
	lost   []string
}

// turned maps operators to those with exchanged operands; opposite maps them to their negations.
var (
	turned   = map[string]string{"<": ">", "<=": ">=", ">": "<", ">=": "<="}
	opposite = map[string]string{"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
)

// due reads a condition that compares a moment of the row with now; ok is false for any other condition.
func (s *surroundings) due(n *node) (d *due, ok bool) {
	negated := n.kind == aNot
	if negated {
		n = n.kids[0]
	}
	if n.kind != anOperand || turned[n.text] == "" {
		return nil, false
	}
	op := n.text
	if negated {
		op = opposite[op]
	}
	left, ok := s.value(n.kids[0])
	right, okay := s.value(n.kids[1])
	switch {
	case !ok || !okay:
		return nil, false
	case right.elapsed != nil || right.row() && left.now():
		left, right, op = right, left, turned[op]
	}
	switch {
	case left.elapsed != nil:
		return s.passed(left.elapsed, op, right)
	case left.moment != nil && right.moment != nil && left.row() && right.now():
		return s.before(*left.moment, op, *right.moment)
	case left.amount != nil && right.amount != nil && left.row() && right.now():
		return s.numbered(*left.amount, op, *right.amount)
	}
	return nil, false
}

func (v value) row() bool {
	return v.moment != nil && !v.moment.isNow() || v.amount.isRow()
}

func (v value) now() bool {
	return v.moment != nil && v.moment.isNow() || v.amount.isNow()
}

// before reads row < now, or <=.
func (s *surroundings) before(row moment, op string, now moment) (d *due, ok bool) {
	if op != "<" && op != "<=" {
		return nil, false
	}
	d = &due{of: row}
	if !d.zones(s, now) {
		return nil, false
	}
	d.calendar(now)
	longer := now.added.times(-1)
	switch {
	case row.unit == "day" && now.unit == "day" && row.added.us == 0 && now.added.us == 0:
		if op == "<" { // midnight before today's: the day before, or earlier
			longer.days++
		}
	case now.unit != "":
		longer = longer.plus(units[now.unit])
		d.lose("the job counts from the beginning of the %s; counted from the moment, with a %s more, no row goes sooner than by the job, and some a %[1]s later", now.unit, now.unit)
	}
	if row.cut {
		d.lose("the job cuts the row's time off to the %s; no row goes sooner than by the job, and some up to a %[1]s later", row.unit)
	}
	d.of.added = row.added.plus(longer)
	if row.ttl != "" && !d.of.added.isZero() {
		return nil, false
	}
	return d, d.settle(s, now)
}

func (d *due) lose(format string, args ...any) { d.lost = append(d.lost, fmt.Sprintf(format, args...)) }

func (d *due) note(format string, args ...any) {
	d.notes = append(d.notes, fmt.Sprintf(format, args...))
}

// zones determines the zone of the row's time. It refuses a comparison between times of different zones.
func (d *due) zones(s *surroundings, now moment) bool {
	row := &d.of
	switch {
	case !row.local && !now.local: // row.zone, if it is a column without one
	case row.local && row.zone == "" && now.local:
		row.zone = now.zone
	case row.local && row.zone == "":
		row.zone = s.zone
	case row.local && now.local && sameZone(row.zone, now.zone), row.local && !now.local && sameZone(row.zone, s.zone):
		row.zone = ""
	case !row.local && now.local && sameZone(now.zone, s.zone):
	default:
		return false
	}
	if row.zone = zoneName(row.zone); row.zone == utc {
		row.zone = ""
	}
	return row.zone == "" || placed(row.zone)
}

// calendar handles months that the job counts back from now.
func (d *due) calendar(now moment) {
	if now.months == 0 {
		return
	}
	months := expiry.Interval{Months: int32(now.months)}.String()
	d.lose("the job counts %s back from now, which is %d days at most; so no row goes sooner than by the job, and some a few days later. "+
		"after: %[1]s counts from the row on", months, longest(now.months))
}

// settle allows for clocks that change. It refuses values that no policy can have.
func (d *due) settle(s *surroundings, now moment) bool {
	of := &d.of
	zone := s.zone
	if of.local && now.local {
		zone = now.zone
	}
	if of.added.us < 0 && of.added.days > 0 {
		of.added.days, of.added.us = of.added.days-1, of.added.us+day
	}
	d.clocks = of.local || now.local || now.unit != ""
	counts := of.added.days != 0 || of.added.months != 0 || now.unit != "" || of.local || now.local
	if zoneName(zone) != utc && of.ttl != "" && (counts || s.columns[of.ttl] == "interval") {
		return false // the row's own time cannot get an hour more
	}
	if zoneName(zone) != utc && (counts && !of.added.isZero() || s.shown(of)) {
		of.added = period{0, of.added.days + longest(of.added.months), of.added.us + 3600*second}
		d.lose("the job counts days in %s, where some have 23 or 25 hours; Lapse counts in UTC. With an hour more, and months as the most days that they have, "+
			"no row goes sooner than by the job", zoneName(zone))
	}
	if of.added.us >= day { // a day of Lapse's has 24 hours
		of.added.days, of.added.us = of.added.days+of.added.us/day, of.added.us%day
	}
	if of.round || now.round {
		d.note("the job rounds to seconds: a row may go a second sooner")
	}
	return of.added.sensible() && (of.epoch == "" || of.zone == "")
}

// shown reports whether the job converts an instant of the row to local time, which goes back an hour once a year.
func (s *surroundings) shown(m *moment) bool {
	v, ok := s.column(m.column)
	return m.local && ok && !(v.moment != nil && v.moment.local)
}

// passed reads elapsed > period, or >=.
func (s *surroundings) passed(e *elapsed, op string, than value) (d *due, ok bool) {
	if op != ">" && op != ">=" {
		return nil, false
	}
	op = turned[op]
	var wait period
	switch {
	case e.kind == exactly && than.period != nil:
		wait = than.period.compared()
	case e.kind == byAge && than.period != nil:
		return s.aged(e, op, *than.period)
	case than.amount == nil:
		return nil, false
	case e.kind == inDays || e.kind == inFull:
		wait, ok = than.amount.of3(period{days: 1})
		if e.kind == inFull && op == "<" { // more than 30 full days are 31
			wait.days++
			op = "<="
		}
	case e.kind == inSecond:
		wait, ok = than.amount.of3(period{us: second})
	}
	if !ok && than.period == nil || wait.days < 0 || wait.us < 0 {
		return nil, false
	}
	to := e.to
	to.added = to.added.minus(wait)
	return s.before(e.from, op, to)
}

// aged reads age() > period. age counts months of 28 to 31 days, but the comparison takes them as 30: that many days are always enough.
func (s *surroundings) aged(e *elapsed, op string, than period) (d *due, ok bool) {
	c := than.compared()
	if c.days < 0 || c.us < 0 {
		return nil, false
	}
	c.days += c.us / day
	c.us %= day
	enough := period{days: longest(c.days/30) + c.days%30, us: c.us}
	to := e.to
	to.added = enough.times(-1)
	if d, ok = s.before(e.from, op, to); ok {
		d.lose("age() counts in months, and a month as 30 days: after %d days a row is old enough for certain, and goes up to %d days later than by the job",
			enough.days, enough.days-c.days+2)
	}
	return d, ok
}

// numbered reads a number of seconds or milliseconds before now.
func (s *surroundings) numbered(row amount, op string, now amount) (d *due, ok bool) {
	of := *row.of
	switch {
	case row.scale != 1:
		return nil, false
	case now.scale == 1000 && of.epoch == "s":
		of.epoch = "ms"
	case now.scale != 1 || of.epoch == "ms" && !of.round:
		return nil, false
	}
	if of.epoch == "ms" {
		of.round = true
	}
	to := *now.of
	to.local, to.zone = false, ""
	return s.before(of, op, to)
}

// entry makes the policy's entry.
func (d *due) entry() expiry.Entry {
	of := &d.of
	e := expiry.Entry{}
	switch {
	case of.raw != "":
		e["expression"] = of.instant()
		return e
	case of.ttl != "":
		e["ttl_column"] = of.ttl
	case !of.added.isZero():
		e["after"] = of.added.interval().String()
	}
	e["column"] = of.column
	for key, text := range map[string]string{"epoch": of.epoch, "zone": of.zone} {
		if text != "" {
			e[key] = text
		}
	}
	return e
}

// instant is the SQL for the row's time if that is not a column.
func (m *moment) instant() string {
	sql := m.raw
	if m.local {
		zone := m.zone
		if zone == "" {
			zone = utc
		}
		sql = "(" + sql + ") at time zone " + schemas.Literal(zone)
	}
	if after := m.added.interval(); !after.IsZero() {
		sql = "(" + sql + ") + interval " + schemas.Literal(after.String())
	}
	return sql
}
