package report

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Redacted is a report without names, and without numbers below five except zero.
//
// It is a function of its cells after 1, 2, 3 and 4 have been made equal: it gives a total only as the range that follows from its visible
// parts. So two databases that differ only in which of these numbers a cell has give the same bytes, and no sum and no rule tells them
// apart. Every edition is of one whole month and of all policies, so that no two editions overlap.
type Redacted struct {
	Kind   string      `json:"kind"` // "redacted_report"
	Schema int         `json:"schema"`
	Period Period      `json:"period"`
	Log    RedactedLog `json:"log"`
	// Without names, by number.
	Policies []RedactedPolicy `json:"policies"`
	Gaps     int64            `json:"gaps"`     // parts of the write-ahead log that no auditor read
	Restores int64            `json:"restores"` // how often the database went back to an earlier state
}

// RedactedLog is what a reader with the log needs.
type RedactedLog struct {
	Name      string      `json:"name"`
	PublicKey string      `json:"public_key"`
	Opening   *Checkpoint `json:"opening"`
	Closing   Checkpoint  `json:"closing"`
}

// RedactedPolicy is a policy without its name.
type RedactedPolicy struct {
	Code     string            `json:"code"` // the policy's number, the same in every edition
	State    string            `json:"state"`
	Evidence string            `json:"evidence"`
	Action   string            `json:"action"`
	Verdict  Grade             `json:"verdict"`
	Findings []RedactedFinding `json:"findings"`
	Zero     []RedactedZero    `json:"zero"` // 0, below 5, or 5 or more
	// RollForward has no times, which would identify a count.
	RollForward RedactedRollForward `json:"roll_forward"`
	Deleted     RedactedDeleted     `json:"deleted"`
	Quarantine  Figure              `json:"quarantined_at_end"`
}

// RedactedFinding is a finding without its number.
type RedactedFinding struct {
	Grade Grade  `json:"grade"`
	About About  `json:"about"`
	Why   Reason `json:"why,omitempty"`
}

// RedactedZero is a line without its transactions.
type RedactedZero struct {
	About  About  `json:"about"`
	Figure Figure `json:"figure"`
}

// RedactedRollForward is the balance without times.
type RedactedRollForward struct {
	DueStart  Figure `json:"due_at_start"`
	HeldStart Figure `json:"held_at_start"`
	ByPolicy  Figure `json:"deleted_by_policy"`
	ByUsers   Figure `json:"deleted_by_users"`
	DueEnd    Figure `json:"due_at_end"`
	HeldEnd   Figure `json:"held_at_end"`
	FellDue   Figure `json:"fell_due_less_refreshed"`
}

// RedactedDeleted is the number of rows that the policy deleted.
type RedactedDeleted struct {
	Rows     Figure        `json:"rows"`
	ByRow    Figure        `json:"by_row"`
	ByDrop   Figure        `json:"by_drop"`
	Soft     Figure        `json:"soft"`
	Cascaded Figure        `json:"cascaded"`
	Days     []RedactedDay `json:"days"` // every day of the period
}

// RedactedDay is one day.
type RedactedDay struct {
	Day      string `json:"day"`
	ByRow    Figure `json:"by_row"`
	ByDrop   Figure `json:"by_drop"`
	Soft     Figure `json:"soft"`
	Cascaded Figure `json:"cascaded"`
}

// Withheld is why a redacted report does not give a number.
const Withheld Reason = "withheld"

const (
	redactedKind = "redacted_report"
	fewest       = 5 // smaller numbers are not given
)

// Redact makes the edition for outsiders. It refuses a report that is not of one month in UTC and of all policies: an overlap of two editions
// would reveal what one of them omits.
func (r *Report) Redact() (*Redacted, error) {
	from, to := r.Period.From.Time().UTC(), r.Period.To.Time().UTC()
	if from.Day() != 1 || !from.Equal(from.Truncate(24*time.Hour)) || !to.Equal(from.AddDate(0, 1, 0)) {
		return nil, errors.New("a redacted report is of one whole month in UTC: two periods that overlap would give away what each leaves out; use --month")
	}
	if len(r.Only) > 0 {
		return nil, errors.New("a redacted report is of all policies: editions of one month are alike")
	}
	out := &Redacted{
		Kind: redactedKind, Schema: Schema, Period: r.Period, Log: RedactedLog{r.Log.Name, r.Log.PublicKey, r.Log.Opening, r.Log.Closing},
		Gaps: r.Coverage.Gaps.Len(), Restores: r.Rewinds.Len(),
	}
	all := make([]*Policy, len(r.Policies))
	for i := range all {
		all[i] = &r.Policies[i]
	}
	slices.SortStableFunc(all, func(a, b *Policy) int { return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Name, b.Name)) })
	for i, p := range all {
		code := fmt.Sprintf("policy %d", p.ID)
		if p.ID == 0 { // the log has no number for it
			code = fmt.Sprintf("policy without a number, %d", i+1)
		}
		out.Policies = append(out.Policies, *p.redact(code, from, to))
	}
	return out, nil
}

func (p *Policy) redact(code string, from, to time.Time) *RedactedPolicy {
	out := &RedactedPolicy{
		Code: code, State: p.State, Evidence: p.Evidence, Action: p.Action, Verdict: p.Verdict, Deleted: p.Deleted.redact(from, to),
		Quarantine: p.Quarantine.AtEnd.cell(),
	}
	for _, f := range p.Findings {
		out.Findings = append(out.Findings, RedactedFinding{f.Grade, f.About, f.Why})
	}
	for _, z := range p.Zero {
		out.Zero = append(out.Zero, RedactedZero{z.About, z.Figure.few()})
	}
	f := &p.RollForward
	r := &out.RollForward
	*r = RedactedRollForward{f.DueStart.cell(), f.HeldStart.cell(), f.ByPolicy.cell(), f.ByUsers.cell(), f.DueEnd.cell(), f.HeldEnd.cell(), f.FellDue}
	// The deletions between two counts are nearly a sum of days: the difference must not reveal the rest.
	if outside := p.Deleted.Rows + p.Deleted.Soft - f.ByPolicy.Least(); f.ByPolicy.Value != nil && (out.Deleted.hidden() || outside != 0 && max(outside, -outside) < fewest) {
		r.ByPolicy = NotAssessed(Withheld)
	}
	for _, part := range []Figure{r.DueStart, r.HeldStart, r.ByPolicy, r.ByUsers, r.DueEnd, r.HeldEnd} {
		if f.FellDue.Value != nil && part.NotAssessed != "" {
			r.FellDue = NotAssessed(Withheld)
		}
	}
	if r.FellDue.NotAssessed != Withheld {
		r.FellDue.AtLeast, r.FellDue.AtMost = nil, nil
	}
	return out
}

// redact gives every day of the period a count, so that a missing day reveals nothing.
func (d *Deleted) redact(from, to time.Time) RedactedDeleted {
	days := map[string]Day{}
	for _, day := range d.Days {
		days[day.Day] = day
	}
	var out RedactedDeleted
	for at := from; at.Before(to); at = at.AddDate(0, 0, 1) {
		name := at.Format(time.DateOnly)
		day := days[name]
		delete(days, name)
		out.Days = append(out.Days, RedactedDay{name, hide(day.ByRow), hide(day.ByDrop), hide(day.Soft), hide(day.Cascaded)})
	}
	for _, name := range slices.Sorted(maps.Keys(days)) { // days outside the period, after a clock was set back
		day := days[name]
		out.Days = append(out.Days, RedactedDay{name, hide(day.ByRow), hide(day.ByDrop), hide(day.Soft), hide(day.Cascaded)})
	}
	for i := range out.Days {
		day := &out.Days[i]
		out.ByRow, out.ByDrop = plus(out.ByRow, day.ByRow), plus(out.ByDrop, day.ByDrop)
		out.Soft, out.Cascaded = plus(out.Soft, day.Soft), plus(out.Cascaded, day.Cascaded)
	}
	out.Rows = plus(out.ByRow, out.ByDrop)
	return out
}

// hidden reports whether a total is hidden.
func (d *RedactedDeleted) hidden() bool {
	return slices.ContainsFunc([]Figure{d.Rows, d.Soft, d.Cascaded}, func(f Figure) bool { return f.Value == nil })
}

// hide makes a number safe to show.
func hide(n int64) Figure {
	if n == 0 || n >= fewest {
		return Number(n)
	}
	least, most := int64(1), int64(fewest-1)
	return Figure{NotAssessed: Withheld, AtLeast: &least, AtMost: &most}
}

// cell is hide for a figure. For one that was not assessed it keeps only the reason.
func (f Figure) cell() Figure {
	if f.Value != nil {
		return hide(*f.Value)
	}
	return NotAssessed(f.NotAssessed)
}

// few hides a figure by its size alone.
func (f Figure) few() Figure {
	if f.Value != nil && *f.Value >= fewest {
		least := int64(fewest)
		return Figure{NotAssessed: Withheld, AtLeast: &least}
	}
	return f.cell()
}

// plus adds numbers as far as they are shown. The zero value is an empty sum.
func plus(a, b Figure) Figure {
	if a == (Figure{}) {
		a = Number(0)
	}
	least, most := a.Least()+b.Least(), a.most()+b.most()
	if least == most {
		return Number(least)
	}
	return Figure{NotAssessed: Withheld, AtLeast: &least, AtMost: &most}
}

// most is an upper bound; 0 if there is none.
func (f Figure) most() int64 {
	if f.Value != nil {
		return *f.Value
	}
	if f.AtMost != nil {
		return *f.AtMost
	}
	return 0
}

// Canonical is the edition's canonical JSON, by the rules of a report's.
func (r *Redacted) Canonical() ([]byte, error) { return canonical(r) }

// ParseRedacted parses canonical JSON. It refuses the same report in any other form.
func ParseRedacted(text []byte) (*Redacted, error) {
	var r Redacted
	if err := parse(text, &r, redactedKind); err != nil {
		return nil, fmt.Errorf("read a redacted report: %w", err)
	}
	return &r, nil
}

// IsRedacted reports whether a text is meant to be a redacted report.
func IsRedacted(text []byte) bool {
	return bytes.HasPrefix(bytes.TrimSpace(text), []byte(`{"kind":"`+redactedKind+`"`))
}
