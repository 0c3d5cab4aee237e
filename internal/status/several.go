package status

import (
	"fmt"
	"slices"

	"lapse/planner/record"
	"lapse/schemas"
)

// NeedsPerson reports whether due rows of the policy stay until a person acts.
func (l *Line) NeedsPerson() bool {
	return slices.ContainsFunc(l.Stays, func(stay record.Stay) bool { return stay.NeedsPerson })
}

// Needing are the policies that need a person.
func (s *Status) Needing() []*Policy {
	var all []*Policy
	for i := range s.Policies {
		if s.Policies[i].NeedsPerson() {
			all = append(all, &s.Policies[i])
		}
	}
	return all
}

// Latest is the policy that is most overdue; nil if none is.
func (s *Status) Latest() *Policy {
	var latest *Policy
	for i := range s.Policies {
		if p := &s.Policies[i]; p.Lag > 0 && (latest == nil || p.Lag > latest.Lag) {
			latest = p
		}
	}
	return latest
}

// Cells are one database's line among several: how many of its policies delete, how many need a person, the longest lag, executors, and the audit.
func (s *Status) Cells() (armed, needing, lag, executors, audit string) {
	n := 0
	for i := range s.Policies {
		if s.Policies[i].State == schemas.Armed {
			n++
		}
	}
	lag = "none"
	if latest := s.Latest(); latest != nil {
		lag = latest.LagText()
	}
	return fmt.Sprintf("%d of %d", n, len(s.Policies)), fmt.Sprint(len(s.Needing())), lag, s.executorsCell(), s.Audit.cell()
}

// executorsCell is ExecutorsText in a word or two.
func (s *Status) executorsCell() string {
	runs := s.Running()
	switch {
	case s.Paused != nil:
		return "paused"
	case s.Suspended != "":
		return "on accept"
	case len(runs) == 0:
		return "none"
	}
	return fmt.Sprintf("%d, %s", len(runs), runs[0].State)
}

// cell is Text in a word or two.
func (a *Audit) cell() string {
	switch {
	case !a.Required:
		return "off"
	case !a.Exists:
		return "no slot"
	case a.Lost:
		return "lost"
	case a.Revoked:
		return "waits for a person"
	case !a.Active:
		return "not read, " + Size(a.Behind)
	}
	return "read, " + Size(a.Behind)
}
