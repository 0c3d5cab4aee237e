package executor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/uuid"

	"lapse/schemas"
)

// Summary says what Once, or a whole process, did.
type Summary struct {
	Policies []PolicySummary `json:"policies"`
}

// PolicySummary says what Once did under one policy.
type PolicySummary struct {
	Policy   schemas.PolicyName    `json:"policy"`
	Table    string                `json:"table"`
	Version  schemas.PolicyVersion `json:"version"`
	Run      uuid.UUID             `json:"run"` // zero: none was begun
	Deleted  int64                 `json:"deleted"`
	Cascaded int64                 `json:"cascaded"`
	Batches  int64                 `json:"batches"`
	Outcome  Outcome               `json:"outcome"`
	Error    string                `json:"error,omitempty"` // why it was stopped, or why rows resist
	Limit    string                `json:"limit,omitempty"` // the limit that was reached
	// Obstacles say what blocks rows in quarantine, and how many each blocks.
	Obstacles []Obstacle `json:"obstacles,omitempty"`
	// LeftBehind: due rows are left because other sessions had them locked. The next run follows soon.
	LeftBehind bool `json:"left_behind,omitempty"`
	// Whole is what all executors did in the run, when last read: at its end, or when it was suspended.
	Whole Statistics `json:"run_by_all"`
}

// Outcome is how Once ended for a policy. A policy that left its armed state meanwhile has that state as its outcome.
type Outcome string

// How Once ends for a policy.
const (
	Finished    Outcome = "finished"    // nothing due at the run's cutoff is left, unless LeftBehind is set
	Limited     Outcome = "limited"     // a limit ended the run; a later run continues
	Stopped     Outcome = "stopped"     // an error stopped the policy
	Resisted    Outcome = "resisted"    // everything was tried; rows are in quarantine, or shards were put aside
	Interrupted Outcome = "interrupted" // Once ended before the run; the next Once continues it
)

// UnknownPolicyError names a policy that is not in force.
type UnknownPolicyError struct {
	Policy schemas.PolicyName
	Known  []schemas.PolicyName
}

func (e *UnknownPolicyError) Error() string {
	known := make([]string, len(e.Known))
	for i, name := range e.Known {
		known[i] = string(name)
	}
	return fmt.Sprintf("there is no policy %s in this database; there are: %s", e.Policy, strings.Join(known, ", "))
}

// NotArmedError names a policy that was to run and may not.
type NotArmedError struct {
	Policy schemas.PolicyName
	State  schemas.State
}

func (e *NotArmedError) Error() string {
	fix := "see `lapse policy list`"
	switch e.State {
	case schemas.Observing:
		fix = fmt.Sprintf("`lapse policy arm %s` lets it delete, and so does `lapse apply` of a file with state: armed, if no more falls due than before", e.Policy)
	case schemas.Paused:
		fix = fmt.Sprintf("`lapse policy resume %s` returns it to the state it had, and `lapse apply` of a file with state: armed lets it continue", e.Policy)
	case schemas.Arming:
		fix = "it waits until the auditor has read the log up to the position at which its table was published: see that `lapse audit` runs"
	}
	return fmt.Sprintf("policy %s is %s: %s", e.Policy, e.State, fix)
}

// Summary says what this process did since it began, in all runs, under each policy that deleted something or is stopped. It is
// for Run, when it has returned: Once returns its own. Whole is the last run's.
func (e *Executor) Summary() Summary {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := map[schemas.PolicyName]*PolicySummary{}
	for name, s := range e.totals {
		copied := *s
		all[name] = &copied
	}
	for i := range e.status {
		line := &e.status[i]
		if line.stopped != "" && all[line.policy] == nil {
			all[line.policy] = &PolicySummary{Policy: line.policy, Table: line.table, Version: line.version}
		}
	}
	for _, s := range all {
		s.Outcome = Finished
		for _, m := range e.known {
			if m.name == s.Policy {
				run := m.run.now()
				run.sum(s)
			}
		}
		for i := range e.status {
			if line := &e.status[i]; line.policy == s.Policy && line.stopped != "" {
				s.Outcome, s.Error = Stopped, line.stopped
			}
		}
	}
	policies := slices.SortedFunc(maps.Values(all), func(a, b *PolicySummary) int { return cmp.Compare(a.Policy, b.Policy) })
	summary := Summary{Policies: make([]PolicySummary, len(policies))}
	for i, s := range policies {
		summary.Policies[i] = *s
	}
	return summary
}

// sum adds the state of the policy's last run.
func (f *runFacts) sum(s *PolicySummary) {
	s.Run, s.Whole, s.LeftBehind = f.run, f.whole, f.leftLocked
	switch {
	case f.open:
		s.Outcome = Interrupted
	case f.resists != nil:
		s.Outcome, s.Error, s.Obstacles = Resisted, f.resists.Error(), obstaclesOf(f.resists)
	}
}
