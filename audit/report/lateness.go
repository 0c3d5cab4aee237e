package report

import (
	"slices"
	"strconv"
	"strings"

	"lapse/audit/evidence"
	"lapse/schemas"
)

// Timeliness says how long after their due time rows were deleted, or had a column set. It covers the rows that the auditor judged ("evidence:
// due"). Their records have a histogram, so each time is between two bounds.
type Timeliness struct {
	Rows  int64      `json:"rows"`               // rows with known lateness
	Other int64      `json:"rows_not_told"`      // rows with unknown lateness
	Why   Reason     `json:"not_told,omitempty"` // why it is unknown
	Steps []LateRows `json:"steps"`
	// The median, the 95th percentile and the maximum of all rows: those with unknown lateness may have been the first to go, or the last.
	P50   Lateness `json:"p50"`
	P95   Lateness `json:"p95"`
	Worst Lateness `json:"worst"`
	// PastDeadline is the number of rows that went later than their due time plus the latitude of the version that deleted them.
	PastDeadline Figure `json:"past_deadline"`
	// OldestPresent is for how long the oldest due row had been due that still existed at the period's last count. Held rows are not due.
	OldestPresent Lateness `json:"oldest_present"`
}

// LateRows is the number of rows in one step of lateness. Steps without a row are omitted.
type LateRows struct {
	Over *int64 `json:"over_seconds"`  // null if there is no lower bound
	UpTo *int64 `json:"up_to_seconds"` // null if later than all steps
	Rows int64  `json:"rows"`
}

// Lateness is a time after due between two bounds, or the reason why it is unknown. With both a reason and a bound, the bound is what is known
// nevertheless.
type Lateness struct {
	Over        *int64 `json:"over_seconds,omitempty"`  // absent if there is no lower bound
	UpTo        *int64 `json:"up_to_seconds,omitempty"` // absent if there is no upper bound
	NotAssessed Reason `json:"not_assessed,omitempty"`
}

// unknownLateness makes a lateness without bounds.
func unknownLateness(why Reason) Lateness { return Lateness{NotAssessed: why} }

// late counts the lateness of one version's deletions.
type late struct {
	steps   evidence.Lateness
	early   int64 // rows that were not due, and so in time
	unknown int64 // judged rows whose due time cannot be read
	untold  int64 // due rows in records of a former version, which have no histogram
}

// take adds a record's counts of rows of the policy's own table.
func (l *late) take(t *evidence.Tally) {
	told := uint64(0)
	for i, n := range t.Late {
		l.steps[i] += n
		told += n
	}
	l.early += int64(t.NotDue)
	l.unknown += int64(t.Judged - t.Due - t.NotDue)
	l.untold += int64(t.Due) - int64(told)
}

// tookLate adds a record's counts of rows that one version deleted.
func (p *policy) tookLate(version int64, t *evidence.Tally) {
	if p.late[version] == nil {
		p.late[version] = &late{}
	}
	p.late[version].take(t)
}

// stepOver and stepUpTo are the bounds of a step; nil if it has none.
func stepOver(i int) *int64 {
	if i == 0 {
		return nil
	}
	n := schemas.LatenessSteps[i-1]
	return &n
}

func stepUpTo(i int) *int64 {
	if i == len(schemas.LatenessSteps) {
		return nil
	}
	n := schemas.LatenessSteps[i]
	return &n
}

// timeliness computes the timeliness of the policy's deletions.
func (c *Count) timeliness(p *policy, r *Policy) Timeliness {
	var all late
	for _, l := range p.late {
		for i, n := range l.steps {
			all.steps[i] += n
		}
		all.early, all.unknown, all.untold = all.early+l.early, all.unknown+l.unknown, all.untold+l.untold
	}
	t := Timeliness{Rows: all.early, OldestPresent: c.oldestPresent(p)}
	for i, n := range all.steps {
		rows := int64(n)
		t.Rows += rows
		if i == 0 {
			rows += all.early
		}
		if rows > 0 {
			t.Steps = append(t.Steps, LateRows{stepOver(i), stepUpTo(i), rows})
		}
	}
	t.Other = r.Deleted.Rows + r.Deleted.Soft - t.Rows
	switch {
	case t.Other == 0:
	case p.dropRows > 0:
		t.Why = DropsNotSent
	case p.unjudged > 0:
		t.Why = EvidenceClaimed
	case all.unknown > 0:
		t.Why = SomeUnknown
	default:
		t.Why = NoHistogram
	}
	missing := t.Why
	switch {
	case c.gapped():
		missing = InGap
	case t.Rows+t.Other == 0:
		missing = NothingDeleted
	}
	t.P50, t.P95, t.Worst = t.rank(50, missing), t.rank(95, missing), t.rank(100, missing)
	t.PastDeadline = c.pastDeadline(p, &t)
	return t
}

// oldestPresent is how late the oldest row was at the period's last count.
func (c *Count) oldestPresent(p *policy) Lateness {
	switch {
	case p.state == dropped:
		return unknownLateness(NothingDue)
	case !c.countedAtEnd(p):
		return unknownLateness(NoSnapshot)
	case p.end.Due == 0:
		return unknownLateness(NothingDue)
	case p.end.oldest == nil:
		return unknownLateness(NotRecorded)
	}
	var l Lateness
	step, exact := slices.BinarySearch(schemas.LatenessSteps[:], *p.end.oldest)
	if exact {
		step++
	}
	if l.UpTo = stepUpTo(step); *p.end.oldest > 0 {
		l.Over = p.end.oldest
	}
	return l
}

// rank is a percentile of lateness. With a gap the number of missing rows is unknown: only the maximum then has a bound, the lower bound of the
// latest row that was seen.
func (t *Timeliness) rank(percent int64, missing Reason) Lateness {
	rows := t.Rows + t.Other
	if missing == InGap && percent < 100 || rows == 0 || t.Rows == 0 {
		return unknownLateness(missing)
	}
	n := (rows*percent + 99) / 100
	var l Lateness
	if first := t.at(n - t.Other); first >= 0 {
		l.Over = stepOver(first)
	}
	last := t.at(n)
	if last >= 0 && missing != InGap {
		l.UpTo = stepUpTo(last)
	}
	// A missing bound means that it is unknown, except below the first step and above the last.
	if n <= t.Other || last < 0 || missing == InGap {
		l.NotAssessed = missing
	}
	return l
}

// at returns the step that contains the nth row of the histogram; -1 if none does.
func (t *Timeliness) at(n int64) int {
	if n < 1 || n > t.Rows {
		return -1
	}
	for i := range t.Steps {
		if n -= t.Steps[i].Rows; n <= 0 {
			if t.Steps[i].UpTo == nil {
				return len(schemas.LatenessSteps)
			}
			return slices.Index(schemas.LatenessSteps[:], *t.Steps[i].UpTo)
		}
	}
	return -1
}

// pastDeadline is the number of rows that went later than the latitude of the version that deleted them. A latitude within a step gives bounds.
func (c *Count) pastDeadline(p *policy, t *Timeliness) Figure {
	if t.Rows+t.Other == 0 {
		return c.read(0)
	}
	least, most, why := int64(0), t.Other, t.Why
	for version, l := range p.late {
		latitude := ""
		if v := p.versions[version]; v != nil && v.Terms != nil {
			latitude = v.Terms.Latitude
		}
		shortest, longest, ok := secondsOf(latitude)
		if !ok {
			why = NoLatitude
		}
		for i, n := range l.steps {
			over, upTo := stepOver(i), stepUpTo(i)
			if ok && over != nil && *over >= longest {
				least += int64(n)
			}
			if !ok || upTo == nil || *upTo > shortest {
				most += int64(n)
			}
		}
	}
	switch {
	case c.gapped():
		return Figure{NotAssessed: InGap, AtLeast: &least}
	case least == most:
		return Number(least)
	case why == "":
		why = BetweenSteps
	}
	return Figure{NotAssessed: why, AtLeast: &least, AtMost: &most}
}

// secondsOf is the smallest and largest number of seconds, in UTC, of an interval in PostgreSQL's notation: a month has 28 to 31 days. ok is false
// for any other notation. It rounds fractions of a second: no step has one.
func secondsOf(text string) (least, most int64, ok bool) {
	words := strings.Fields(text)
	if n := len(words); n%2 == 1 {
		parts := strings.Split(words[n-1], ":")
		if len(parts) != 3 {
			return 0, 0, false
		}
		seconds, fraction, _ := strings.Cut(parts[2], ".")
		parts[2] = seconds
		for _, part := range parts {
			n, err := strconv.ParseUint(part, 10, 32)
			if err != nil {
				return 0, 0, false
			}
			least = least*60 + int64(n)
		}
		most = least
		if fraction != "" {
			most++
		}
		words = words[:n-1]
	}
	for i := 0; i < len(words); i += 2 {
		n, err := strconv.ParseUint(words[i], 10, 32)
		days, found := daysOf[strings.TrimSuffix(words[i+1], "s")]
		if err != nil || !found {
			return 0, 0, false
		}
		least, most = least+int64(n)*days[0]*24*60*60, most+int64(n)*days[1]*24*60*60
	}
	return least, most, text != ""
}

var daysOf = map[string][2]int64{"day": {1, 1}, "mon": {28, 31}, "year": {365, 366}}
