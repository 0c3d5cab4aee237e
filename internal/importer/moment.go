package importer

import (
	"math/big"
	"strings"

	"lapse/planner/expiry"
)

// moment is an instant of a row or of the statement: a column or now, plus additions.
type moment struct {
	column string // "" for now
	raw    string // of a row: not a column, but this expression
	ttl    string // the column that is added, "" for none
	epoch  string // the column is a number: of seconds (s) or milliseconds (ms)
	local  bool   // without a zone: what clocks show
	zone   string // if local: the clocks' zone, "" for the column's own; otherwise the zone in which a column without zone is read
	date   bool   // a date
	unit   string // it is truncated to a day, an hour …; a date is truncated to a day
	cut    bool   // the statement truncates it
	added  period
	months int64 // subtracted months; added counts them as the largest number of days that they can have
	round  bool  // it is rounded to a second
}

// elapsed is the time from a moment of the row to a moment of the statement.
type elapsed struct {
	to, from moment
	kind     elapsedKind
}

type elapsedKind byte

const (
	exactly  elapsedKind = 'e' // in days of 24 hours, and hours
	byAge    elapsedKind = 'a' // as age() counts: in months, days and hours
	inDays   elapsedKind = 'd' // a number of days
	inFull   elapsedKind = 'f' // a number of whole days, the rest cut off
	inSecond elapsedKind = 's' // a number of seconds
)

// amount is a number: a constant, or seconds since 1970 of a moment, times scale.
type amount struct {
	constant *big.Rat
	of       *moment
	scale    int64
	whole    bool // an integer
}

// value is a moment, an elapsed time, an amount, a period, a text or a zone.
type value struct {
	moment  *moment
	elapsed *elapsed
	amount  *amount
	period  *period
	text    *string
	ttl     string // a column that holds a period, or seconds
}

// surroundings are the settings and columns that an expression's meaning depends on.
type surroundings struct {
	zone    string            // the session's zone
	columns map[string]string // the type of each column; a domain is unknown here
}

// sameZone reports whether two names denote one zone.
func sameZone(a, b string) bool { return zoneName(a) == zoneName(b) }

const utc = "UTC"

// zoneName is a zone's name as a policy has it.
func zoneName(name string) string {
	name = strings.Trim(name, `'" `)
	switch strings.ToLower(name) {
	case "utc", "gmt", "etc/utc", "etc/gmt", "zulu", "uct", "etc/uct", "universal", "etc/universal", "greenwich", "z", "gmt0", "etc/zulu":
		return utc
	}
	return name
}

// placed reports whether a policy may name the zone.
func placed(name string) bool {
	_, err := expiry.LoadZone(zoneName(name))
	return err == nil
}

// value evaluates an expression; ok is false if its meaning is not known here.
func (s *surroundings) value(n *node) (v value, ok bool) {
	switch n.kind {
	case aLiteral:
		return value{text: &n.text}, true
	case aNumber:
		if r, ok := new(big.Rat).SetString(n.text); ok {
			return value{amount: &amount{constant: r, whole: r.IsInt() && !strings.ContainsAny(n.text, ".eE")}}, true
		}
	case aColumn:
		return s.column(n.text)
	case aCast:
		return s.cast(n)
	case aZone:
		of, ok := s.value(n.kids[0])
		zone, isText := s.text(n.kids[1])
		if ok && isText && of.moment != nil {
			return s.at(*of.moment, zone)
		}
	case aCall:
		return s.call(n)
	case anOperand:
		left, ok := s.value(n.kids[0])
		right, okay := s.value(n.kids[1])
		if ok && okay {
			return left.operate(n.text, right)
		}
	}
	return v, false
}

// text reads a constant text.
func (s *surroundings) text(n *node) (string, bool) {
	if n.kind == aCast && n.text == "text" {
		n = n.kids[0]
	}
	return n.text, n.kind == aLiteral
}

func (s *surroundings) column(name string) (v value, ok bool) {
	switch s.columns[name] {
	case "timestamp with time zone":
		return value{moment: &moment{column: name}}, true
	case "timestamp without time zone":
		return value{moment: &moment{column: name, local: true}}, true
	case "date":
		return value{moment: &moment{column: name, local: true, date: true, unit: "day"}}, true
	case "smallint", "integer", "bigint":
		return value{amount: &amount{of: &moment{column: name, epoch: "s"}, scale: 1, whole: true}, ttl: name}, true
	case "numeric", "real", "double precision":
		return value{amount: &amount{of: &moment{column: name, epoch: "s"}, scale: 1}, ttl: name}, true
	case "interval":
		return value{ttl: name}, true
	}
	return v, false
}

// at reads AT TIME ZONE. It refuses additions from before: in another zone they would give another result.
func (s *surroundings) at(m moment, zone string) (value, bool) {
	if (!m.added.isZero() || m.ttl != "" || m.unit != "") && (zoneName(zone) != utc || zoneName(s.zone) != utc) {
		return value{}, false
	}
	if m.epoch != "" && m.local || m.raw != "" {
		return value{}, false
	}
	switch {
	case !m.local: // to local time there
		if m.zone != "" || m.date {
			return value{}, false
		}
		m.local, m.zone = true, zone
	case m.date: // the date's midnight: PostgreSQL reads it in the session's zone first
		return value{}, false
	case m.zone == "": // the column is read there
		m.local, m.zone = false, zone
	case sameZone(m.zone, zone): // and back
		m.local, m.zone = false, ""
	default:
		return value{}, false
	}
	return value{moment: &m}, true
}

// local converts an instant to the local time of the session's zone.
func (s *surroundings) local(m moment) (value, bool) {
	if m.epoch != "" || m.raw != "" || m.zone != "" {
		return value{}, false
	}
	m.local, m.zone = true, s.zone
	return value{moment: &m}, true
}

// cast reads a cast to a type.
func (s *surroundings) cast(n *node) (v value, ok bool) {
	if v, ok = s.value(n.kids[0]); !ok {
		return v, false
	}
	switch {
	case v.text != nil && n.text == "interval":
		p, ok := readPeriod(*v.text)
		return value{period: &p}, ok
	case v.text != nil && n.text == "text":
		return v, true
	case v.text != nil && (n.text == "integer" || n.text == "bigint" || n.text == "smallint" || n.text == "numeric"): // '-30'::integer
		r, ok := new(big.Rat).SetString(*v.text)
		return value{amount: &amount{constant: r, whole: ok && r.IsInt() && n.text != "numeric"}}, ok
	case v.amount != nil && (n.text == "numeric" || n.text == "double" || n.text == "real" && v.amount.constant != nil):
		a := *v.amount
		a.whole = false
		return value{amount: &a, ttl: v.ttl}, true
	case v.amount != nil && v.ttl == "" && (n.text == "bigint" || n.text == "integer"):
		return v.amount.rounded(true)
	case v.amount != nil && (n.text == "bigint" || n.text == "integer") && v.amount.whole:
		return v, true
	case v.moment != nil && v.moment.raw == "":
		return s.castMoment(*v.moment, n.text)
	}
	return v, false
}

// castMoment casts between dates and timestamps, in the session's zone.
func (s *surroundings) castMoment(m moment, to string) (value, bool) {
	if m.ttl != "" {
		return value{}, false
	}
	switch {
	case to == "date" && m.date:
	case to == "date":
		if !m.local {
			if m.zone != "" {
				return value{}, false
			}
			m.local, m.zone = true, s.zone
		}
		if m.unit != "" && !(m.unit == "day" && m.added.whole()) {
			return value{}, false
		}
		m.date, m.unit, m.cut = true, "day", true
	case to == "timestamp" && m.local:
		m.date = false
	case to == "timestamp":
		return s.local(m)
	case to == "timestamptz" && !m.local:
	case to == "timestamptz" && m.zone == "":
		m.local, m.date, m.zone = false, false, s.zone
	case to == "timestamptz" && sameZone(m.zone, s.zone):
		m.local, m.date, m.zone = false, false, ""
	default:
		return value{}, false
	}
	return value{moment: &m}, true
}

// whole reports whether a period consists of days only.
func (p period) whole() bool { return p.months == 0 && p.us == 0 }
