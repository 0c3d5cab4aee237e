package status

import (
	"fmt"
	"slices"
	"time"

	"lapse/planner/record"
	"lapse/schemas"
)

// Past is what `lapse policy history` prints.
type Past struct {
	Policy  schemas.PolicyName    `json:"policy"`
	Version schemas.PolicyVersion `json:"version"`
	State   schemas.State         `json:"state"`
	History []Step                `json:"history"`
}

// Step is one step of a policy's history: a version or, if State is set, a state.
type Step struct {
	At          time.Time             `json:"at"`
	By          string                `json:"by"`
	Reason      string                `json:"reason,omitempty"`
	Version     schemas.PolicyVersion `json:"version"`
	State       schemas.State         `json:"state,omitempty"`
	Changes     []record.FieldChange  `json:"changes,omitempty"`
	MoreFallDue bool                  `json:"more_fall_due,omitempty"`
	HeldAgainst schemas.PolicyVersion `json:"held_against,omitempty"` // it was held back: more fell due than under this version
	Entry       string                `json:"entry,omitempty"`
	FormerEntry string                `json:"former_entry,omitempty"`
}

// PastOf returns all steps of a policy, oldest first.
func PastOf(of *record.Policy) Past {
	steps := make([]Step, 0, len(of.Versions)+len(of.States))
	for i := range of.Versions {
		v := &of.Versions[i]
		steps = append(steps, Step{
			At: v.At, By: v.By, Reason: v.Reason, Version: v.Definition.Version, Changes: v.Changes, MoreFallDue: v.MoreDue, HeldAgainst: v.Spec.HeldAgainst,
			Entry: v.Entry, FormerEntry: v.Former,
		})
	}
	for _, s := range of.States {
		steps = append(steps, Step{At: s.At, By: s.By, Reason: s.Reason, Version: s.Version, State: s.State})
	}
	slices.SortStableFunc(steps, func(a, b Step) int { return a.At.Compare(b.At) })
	return Past{of.Name, of.Version, of.State, steps}
}

// Text is the step's line, without its instant.
func (s *Step) Text() string {
	what := fmt.Sprintf("version %d", s.Version)
	if s.State != "" {
		what = fmt.Sprintf("%s, version %d", s.State, s.Version)
	}
	return fmt.Sprintf("%s, by %s%s", what, s.By, because(s.Reason))
}

// Details are what the step changed, a line each.
func (s *Step) Details() []string {
	var lines []string
	for _, change := range s.Changes {
		lines = append(lines, change.String())
	}
	if s.HeldAgainst != 0 {
		lines = append(lines, fmt.Sprintf("held back: more rows may fall due than under version %d", s.HeldAgainst))
	} else if s.MoreFallDue {
		lines = append(lines, "more rows may fall due than under the version in force before")
	}
	return lines
}
