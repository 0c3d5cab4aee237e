package expiry

import (
	"fmt"
	"slices"

	"lapse/schemas"
)

// Elsewhere says how to tell without PostgreSQL whether a row is due: from one column's text, with whole numbers. If that is impossible for a
// kind, due is nil, and why says why.
func Elsewhere(k Kind) (due *schemas.Due, why string) {
	switch k := k.(type) {
	case *Age:
		return k.elsewhere(k.After)
	case *Bucket:
		return k.elsewhere(k.Span, k.After)
	case *Epoch:
		as := schemas.DueSeconds
		if k.Unit == milliseconds {
			as = schemas.DueMilliseconds
		}
		switch {
		case k.inJSON():
			return nil, "the number is inside a document"
		case !slices.Contains(wholeTypes(), k.Type):
			return nil, fmt.Sprintf("column %s is %s, and only whole numbers are the same everywhere", k.Column, k.Type)
		}
		return &schemas.Due{Column: k.Column, As: as, After: periods(k.After)}, ""
	case *TTL:
		return nil, "each row has a ttl of its own"
	case *Sidecar:
		return nil, "the due time is in another table"
	case *ISO8601, *NumberOrText:
		return nil, "the due time is a text, which can be written in many ways"
	default:
		return nil, "only PostgreSQL can compute it"
	}
}

func (m *Moment) elsewhere(after ...Interval) (*schemas.Due, string) {
	due := &schemas.Due{Column: m.Column, After: periods(after...)}
	switch {
	case !m.inUTC():
		return nil, "the rules of zone " + m.Zone + " are not the same on every machine"
	case m.Type == Timestamptz:
		due.As = schemas.DueInstant
	case m.Type == Timestamp:
		due.As = schemas.DueTimestamp
	default:
		due.As = schemas.DueDate
	}
	return due, ""
}

// periods are the intervals that are not zero.
func periods(after ...Interval) (all []schemas.Period) {
	for _, i := range after {
		if !i.IsZero() {
			all = append(all, schemas.Period{Months: i.Months, Days: i.Days, Microseconds: i.Microseconds})
		}
	}
	return all
}
