package evidence

import (
	"slices"
	"strconv"
	"time"

	"lapse/schemas"
)

// tell applies to a system event what the batch's row says about its events: hashes instead of keys, values in addition, and whether the
// row was due. Values and judgement are only for the target: the policy says nothing about rows that a cascade deletes.
func (c *classifier) tell(e *Event) {
	e.Hashed = c.hashed
	if e.Cascade {
		return
	}
	if c.due != nil {
		var at time.Time
		e.Due = CannotTell
		if i := slices.IndexFunc(e.Keys, func(k Key) bool { return k.Name == c.due.Column }); i >= 0 && !e.Keys[i].Null {
			e.Due, at = judge(c.due, e.Keys[i].Value, c.claim.Cutoff)
		}
		c.account.judge(e.Due, at, c.tx.CommitTime)
	}
	told := func(k Key) bool { return slices.Contains(c.values, k.Name) }
	if len(c.values) == 0 || !slices.ContainsFunc(e.Keys, func(k Key) bool { return !told(k) }) {
		return // without a remaining column, nothing would name the row
	}
	rest := e.Keys[:0]
	for _, k := range e.Keys {
		if told(k) {
			e.Values = append(e.Values, k)
		} else {
			rest = append(rest, k)
		}
	}
	e.Keys = rest
}

// Judge says whether a row was due at cutoff; text is its column as in the log. For every value it agrees with the deletion function's
// condition in PostgreSQL.
func Judge(due *schemas.Due, text []byte, cutoff time.Time) Judgement {
	is, _ := judge(due, text, cutoff)
	return is
}

// judge also says since when, if it was due.
func judge(due *schemas.Due, text []byte, cutoff time.Time) (is Judgement, at time.Time) {
	at, ok := instantOf(due.As, text)
	if !ok {
		return CannotTell, at
	}
	// A column after the cutoff is not due, whatever is added, so nothing below overflows.
	if at.Unix() < schemas.DueEarliest || at.After(cutoff) {
		return IsNotDue, at
	}
	for _, period := range due.After {
		at = addPeriod(at, period)
	}
	if at.After(cutoff) {
		return IsNotDue, at
	}
	return IsDue, at
}

// never is the due time of a row that is never due: it is after every cutoff.
var never = time.Unix(1<<44, 0).UTC()

// instantOf reads a column.
func instantOf(as schemas.DueAs, text []byte) (at time.Time, ok bool) {
	switch as {
	case schemas.DueSeconds, schemas.DueMilliseconds:
		n, err := strconv.ParseInt(string(text), 10, 64)
		if as == schemas.DueMilliseconds {
			n = n/1000 - (n%1000)>>63&1 // rounded down, below 1970 too
		}
		if n > never.Unix() {
			return never, err == nil
		}
		return time.Unix(max(n, schemas.DueEarliest-1), 0).UTC(), err == nil
	case schemas.DueInstant, schemas.DueTimestamp, schemas.DueDate:
		if s := string(text); s == "infinity" || s == "-infinity" {
			return never, true
		}
		r := reader{rest: text}
		m, ok := r.moment(as != schemas.DueDate, as == schemas.DueInstant)
		return time.Unix(m.seconds()+m.micros/microsPerSecond, m.micros%microsPerSecond*1000).UTC(), ok
	default:
		return never, false
	}
}

// addPeriod adds as PostgreSQL does in UTC: months first, to the month's last day if it is shorter, then days, then time.
func addPeriod(t time.Time, p schemas.Period) time.Time {
	if p.Months != 0 {
		year, month, day := t.Date()
		first := time.Date(year, month+time.Month(p.Months), 1, t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
		t = first.AddDate(0, 0, min(day, first.AddDate(0, 1, -1).Day())-1)
	}
	t = t.AddDate(0, 0, int(p.Days))
	return time.Unix(t.Unix()+p.Microseconds/microsPerSecond, int64(t.Nanosecond())+p.Microseconds%microsPerSecond*1000).UTC()
}
