package importer

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"lapse/planner/expiry"
)

// period is an interval of either sign, in PostgreSQL's three parts.
type period struct {
	months, days int64
	us           int64
}

var (
	day    = 24 * time.Hour.Microseconds()
	second = time.Second.Microseconds()
)

var periodPattern = regexp.MustCompile(`^(?:([+-]?\d+) years? ?)?(?:([+-]?\d+) mons? ?)?(?:([+-]?\d+) days? ?)?(?:([+-]?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?$`)

// readPeriod reads an interval as PostgreSQL writes it.
func readPeriod(text string) (p period, ok bool) {
	m := periodPattern.FindStringSubmatch(text)
	if m == nil || text == "" || len(text) > 100 {
		return p, false
	}
	var n [9]int64
	m[8] += strings.Repeat("0", 6-len(m[8]))
	for i, part := range m {
		if i == 0 || i == 4 || part == "" {
			continue
		}
		var err error
		if n[i], err = strconv.ParseInt(part, 10, 32); err != nil {
			return p, false
		}
	}
	p = period{n[1]*12 + n[2], n[3], (n[5]*3600+n[6]*60+n[7])*second + n[8]}
	if m[4] == "-" {
		p.us = -p.us
	}
	return p, true
}

func (p period) plus(o period) period {
	return period{p.months + o.months, p.days + o.days, p.us + o.us}
}
func (p period) times(n int64) period  { return period{p.months * n, p.days * n, p.us * n} }
func (p period) minus(o period) period { return p.plus(o.times(-1)) }
func (p period) isZero() bool          { return p == period{} }
func (p period) interval() expiry.Interval {
	return expiry.Interval{Months: int32(p.months), Days: int32(p.days), Microseconds: p.us}
}

// sensible reports whether no part is negative or absurdly large.
func (p period) sensible() bool {
	const most = 3_000_000 // days, some 8,000 years
	return p.months >= 0 && p.days >= 0 && p.us >= 0 && p.months < most/30 && p.days < most && p.us < most*day
}

// compared is the length that PostgreSQL compares: a month has 30 days.
func (p period) compared() period { return period{0, p.months*30 + p.days, p.us} }

// longest is the largest number of days that so many months can have.
func longest(months int64) int64 {
	if months == 0 {
		return 0
	}
	most := int64(0)
	for start := range 48 { // four years; where one without a leap day is among them, they are shorter
		from := time.Date(2000, time.Month(1+start), 1, 0, 0, 0, 0, time.UTC)
		to := from.AddDate(0, int(months), 0)
		most = max(most, int64(to.Sub(from).Hours()/24))
	}
	return most
}
