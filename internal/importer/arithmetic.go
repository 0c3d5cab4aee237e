package importer

import (
	"math/big"
	"slices"
	"strings"
)

// clocks are the functions that return the time: the statement's, the transaction's or the present. In a job all mean the same.
var clocks = []string{"now", "current_timestamp", "transaction_timestamp", "statement_timestamp", "clock_timestamp"}

// units are date_trunc's units, with the greatest length of each.
var units = map[string]period{
	"microseconds": {us: 1}, "milliseconds": {us: 1000}, "second": {us: second}, "minute": {us: 60 * second}, "hour": {us: 3600 * second},
	"day": {days: 1}, "week": {days: 7}, "month": {days: 31}, "quarter": {days: 92}, "year": {days: 366},
}

// call reads a call of a pg_catalog function. A name without a schema is one, because PostgreSQL wrote the normal form under that search_path.
func (s *surroundings) call(n *node) (v value, ok bool) {
	switch {
	case slices.Contains(clocks, n.text) && len(n.kids) == 0:
		return value{moment: &moment{}}, true
	case n.text == "localtimestamp" && len(n.kids) == 0:
		return value{moment: &moment{local: true, zone: s.zone}}, true
	case n.text == "current_date" && len(n.kids) == 0:
		return value{moment: &moment{local: true, zone: s.zone, date: true, unit: "day"}}, true
	case n.text == "make_interval":
		return s.makeInterval(n)
	}
	of := make([]value, len(n.kids))
	for i, kid := range n.kids {
		if n.labels[i] != "" {
			return v, false
		}
		if of[i], ok = s.value(kid); !ok {
			return v, false
		}
	}
	switch {
	case n.text == "timezone" && len(of) == 2 && of[0].text != nil && of[1].moment != nil:
		return s.at(*of[1].moment, *of[0].text)
	case n.text == "date_trunc" && len(of) >= 2 && of[0].text != nil && of[1].moment != nil:
		return s.truncated(*of[0].text, of[1:])
	case n.text == "to_timestamp" && len(of) == 1 && of[0].amount != nil:
		return of[0].amount.instant()
	case n.text == "date_part" && len(of) == 2 && of[0].text != nil:
		return part(*of[0].text, of[1])
	case n.text == "age":
		return s.age(of)
	case (n.text == "floor" || n.text == "round" || n.text == "trunc" || n.text == "ceil") && len(of) == 1 && of[0].amount != nil && of[0].ttl == "":
		return of[0].amount.rounded(false)
	}
	return v, false
}

// makeInterval reads make_interval(days => 30).
func (s *surroundings) makeInterval(n *node) (v value, ok bool) {
	names := []string{"years", "months", "weeks", "days", "hours", "mins", "secs"}
	sizes := []period{{months: 12}, {months: 1}, {days: 7}, {days: 1}, {us: 3600 * second}, {us: 60 * second}, {us: second}}
	var p period
	for i, kid := range n.kids {
		at := i
		if n.labels[i] != "" {
			at = slices.Index(names, n.labels[i])
		}
		of, ok := s.value(kid)
		if !ok || at < 0 || at >= len(sizes) || of.amount == nil {
			return v, false
		}
		if of.ttl != "" && names[at] == "secs" && len(n.kids) == 1 {
			return value{ttl: of.ttl}, true
		}
		more, ok := of.amount.of3(sizes[at])
		if !ok {
			return v, false
		}
		p = p.plus(more)
	}
	return value{period: &p}, true
}

// of3 multiplies a constant and a period. It does not convert parts of months or days to smaller units.
func (a *amount) of3(p period) (period, bool) {
	if a.constant == nil {
		return p, false
	}
	if a.constant.IsInt() && a.constant.Num().IsInt64() && a.constant.Num().CmpAbs(big.NewInt(1e9)) < 0 {
		n := a.constant.Num().Int64()
		return p.times(n), p.us == 0 || n == 0 || p.us*n/n == p.us && p.us < 4000*3600*second
	}
	us := new(big.Rat).Mul(a.constant, new(big.Rat).SetInt64(p.us))
	if p.months != 0 || p.days != 0 || !us.IsInt() || !us.Num().IsInt64() {
		return p, false
	}
	return period{us: us.Num().Int64()}, true
}

// truncated reads date_trunc. For a column it records the unit.
func (s *surroundings) truncated(unit string, of []value) (v value, ok bool) {
	m := *of[0].moment
	unit = strings.TrimSuffix(strings.ToLower(unit), "s")
	if _, known := units[unit]; !known || m.unit != "" && !(m.date && unit == "day") || m.ttl != "" || m.raw != "" {
		return v, false
	}
	switch {
	case len(of) == 1:
	case len(of) == 2 && of[1].text != nil && sameZone(*of[1].text, s.zone) && !m.local: // the session's zone, which applies without the argument too
	default:
		return v, false
	}
	if m.date { // date_trunc reads a date as a timestamp with a zone
		return v, false
	}
	m.unit, m.cut = unit, true
	return value{moment: &m}, true
}

// part is EXTRACT.
func part(field string, of value) (v value, ok bool) {
	switch field = strings.ToLower(field); {
	case field == "epoch" && of.moment != nil && of.moment.column == "" && of.moment.raw == "" && (!of.moment.local || zoneName(of.moment.zone) == utc):
		return value{amount: &amount{of: of.moment, scale: 1}}, true
	case field == "epoch" && of.elapsed != nil && of.elapsed.kind == exactly:
		e := *of.elapsed
		e.kind = inSecond
		return value{elapsed: &e}, true
	case (field == "day" || field == "days") && of.elapsed != nil && of.elapsed.kind == exactly:
		e := *of.elapsed
		e.kind = inFull
		return value{elapsed: &e}, true
	}
	return v, false
}

// age reads age(t), which counts from today's midnight, and age(now, t).
func (s *surroundings) age(of []value) (v value, ok bool) {
	var e elapsed
	switch {
	case len(of) == 1 && of[0].moment != nil:
		e = elapsed{to: moment{local: true, zone: s.zone, unit: "day"}, from: *of[0].moment}
		if !e.from.local {
			e.to = moment{unit: "day"}
		}
	case len(of) == 2 && of[0].moment != nil && of[1].moment != nil:
		e = elapsed{to: *of[0].moment, from: *of[1].moment}
	}
	e.kind = byAge
	return value{elapsed: &e}, e.fits() && e.from.added.isZero() && e.to.added.isZero()
}

// fits reports whether an elapsed time goes from the row's moment to the statement's.
func (e *elapsed) fits() bool {
	return e.to.isNow() && !e.from.isNow() && e.from.ttl == "" && e.from.raw == ""
}

func (m *moment) isNow() bool { return m.column == "" && m.raw == "" }

// rounded drops the fraction of an amount.
func (a *amount) rounded(whole bool) (v value, ok bool) {
	b := *a
	b.whole = whole
	if a.constant != nil {
		return value{amount: &b}, a.constant.IsInt()
	}
	m := *a.of
	m.round = true
	b.of = &m
	return value{amount: &b}, true
}

// instant reads to_timestamp of a column.
func (a *amount) instant() (v value, ok bool) {
	if a.of == nil || a.of.column == "" || a.scale != 1 {
		return v, false
	}
	m := *a.of
	return value{moment: &m}, true
}

// operate reads a computing operator of pg_catalog.
func (v value) operate(op string, o value) (value, bool) {
	switch {
	case v.moment != nil && o.period != nil && (op == "+" || op == "-"):
		return v.moment.shifted(*o.period, op == "-")
	case v.period != nil && o.moment != nil && op == "+":
		return o.moment.shifted(*v.period, false)
	case v.moment != nil && o.ttl != "" && o.amount == nil && op == "+":
		return v.moment.living(o.ttl)
	case v.moment != nil && v.moment.date && o.amount != nil && o.amount.constant != nil && (op == "+" || op == "-"):
		days, ok := o.amount.of3(period{days: 1})
		if !ok {
			return v, false
		}
		return v.moment.shiftedDate(days, op == "-")
	case v.moment != nil && o.moment != nil && op == "-":
		e := elapsed{to: *v.moment, from: *o.moment, kind: exactly}
		if v.moment.date && o.moment.date {
			e.kind = inDays
		}
		return value{elapsed: &e}, e.fits() && v.moment.date == o.moment.date && v.moment.local == o.moment.local
	case v.period != nil && o.amount != nil && op == "*":
		return o.scaled(*v.period)
	case v.amount != nil && o.period != nil && op == "*":
		return v.scaled(*o.period)
	case v.text != nil && o.text != nil && op == "||":
		text := *v.text + *o.text
		return value{text: &text}, true
	case v.amount != nil && v.amount.constant != nil && v.amount.whole && o.text != nil && op == "||":
		text := v.amount.constant.Num().String() + *o.text
		return value{text: &text}, true
	case v.period != nil && o.period != nil && (op == "+" || op == "-"):
		sum := v.period.plus(*o.period)
		if op == "-" {
			sum = v.period.minus(*o.period)
		}
		return value{period: &sum}, true
	case v.amount.isNow() && o.amount.isRow() && op == "-" && v.amount.scale == 1 && o.amount.scale == 1:
		to := *v.amount.of
		to.local, to.zone = false, ""
		e := elapsed{to: to, from: *o.amount.of, kind: inSecond}
		return value{elapsed: &e}, true
	case v.amount != nil && o.amount != nil:
		return v.amount.operate(op, o.amount)
	}
	return v, false
}

func (a *amount) isNow() bool { return a != nil && a.of != nil && a.of.isNow() }
func (a *amount) isRow() bool { return a != nil && a.of != nil && !a.of.isNow() }

// scaled multiplies an amount and a period: a column of seconds becomes the row's own ttl.
func (v value) scaled(p period) (value, bool) {
	if v.ttl != "" && p == (period{us: second}) {
		return value{ttl: v.ttl}, true
	}
	product, ok := v.amount.of3(p)
	return value{period: &product}, ok
}

// living adds a column to a moment.
func (m moment) living(column string) (value, bool) {
	if m.column == "" || m.epoch != "" || m.ttl != "" || !m.added.isZero() || m.unit != "" && !m.date {
		return value{}, false
	}
	m.ttl, m.date = column, false
	return value{moment: &m}, true
}

// shifted adds a period to a moment, or subtracts it. Months subtracted from now count as the largest number of days that they can have, so
// the result is never later.
func (m moment) shifted(p period, back bool) (value, bool) {
	if m.ttl != "" || m.round {
		return value{}, false
	}
	if back {
		p = p.times(-1)
	}
	if m.isNow() && p.months != 0 {
		if p.months > 0 || p.days > 0 || p.us > 0 || p.months < -12*1000 {
			return value{}, false
		}
		m.months += -p.months
		p.days -= longest(-p.months)
		p.months = 0
	}
	if !m.isNow() && (p.months < 0 || p.months > 0 && !m.added.isZero()) {
		return value{}, false
	}
	m.added, m.date = m.added.plus(p), false
	return value{moment: &m}, true
}

func (m moment) shiftedDate(days period, back bool) (value, bool) {
	v, ok := m.shifted(days, back)
	if ok {
		v.moment.date = true
	}
	return v, ok
}

// operate computes with numbers: constants, and seconds since 1970 plus what is added to them.
func (a *amount) operate(op string, o *amount) (v value, ok bool) {
	if a.constant != nil && o.constant != nil {
		return a.compute(op, o)
	}
	if o.constant == nil || !o.constant.IsInt() || !o.constant.Num().IsInt64() || a.of == nil {
		return v, false
	}
	n, b := o.constant.Num().Int64(), *a
	m := *a.of
	b.of = &m
	switch {
	case op == "*" && n == 1000 && a.scale == 1 && m.column == "":
		b.scale = 1000
	case op == "/" && n == 1000 && m.column != "" && m.epoch == "s" && a.scale == 1:
		m.epoch, m.round = "ms", true
	case (op == "+" || op == "-") && m.column == "" && n < 1e13 && n > -1e13:
		if op == "-" {
			n = -n
		}
		m.added.us += n * (second / a.scale)
	default:
		return v, false
	}
	return value{amount: &b}, true
}

// compute does arithmetic on constants.
func (a *amount) compute(op string, o *amount) (v value, ok bool) {
	r, whole := new(big.Rat), a.whole && o.whole
	switch op {
	case "+":
		r.Add(a.constant, o.constant)
	case "-":
		r.Sub(a.constant, o.constant)
	case "*":
		r.Mul(a.constant, o.constant)
	default:
		return v, false
	}
	return value{amount: &amount{constant: r, whole: whole}}, true
}
