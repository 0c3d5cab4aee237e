package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"lapse/planner"
	"lapse/schemas"
)

const (
	// armingPatience is how long Once waits for the auditor to pass the position of an arming policy.
	armingPatience = 10 * time.Second
	// stallPatience is how long an auditor that is behind may stand still before Once gives up.
	stallPatience = 10 * time.Second
)

// Summary says what Once did.
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
	Error    string                `json:"error,omitempty"` // of one that was stopped, or in which rows resist
	// LeftBehind says that due rows are left that somebody had locked all the time. The next run follows soon.
	LeftBehind bool `json:"left_behind,omitempty"`
}

// Outcome is how Once ended for a policy. A policy that left its armed state meanwhile has that state as its outcome.
type Outcome string

// How Once ends for a policy.
const (
	Finished    Outcome = "finished"    // nothing that was due at the run's cutoff is left, unless LeftBehind says so
	Stopped     Outcome = "stopped"     // an error stopped the policy
	Resisted    Outcome = "resisted"    // all was tried; shards in which a row resists were put aside
	Interrupted Outcome = "interrupted" // Once ended before the run did; the next one goes on with it
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
		fix = fmt.Sprintf("`lapse policy resume %s` takes it back to where it was, and `lapse apply` of a file with state: armed lets it go on", e.Policy)
	case schemas.Arming:
		fix = "it waits until the auditor has read the log up to the position at which its table was published: see that `lapse audit` runs"
	}
	return fmt.Sprintf("policy %s is %s: %s", e.Policy, e.State, fix)
}

// ResistingError says that rows of a policy cannot be deleted. What else is due was.
type ResistingError struct {
	Policy  schemas.PolicyName
	Shards  int
	RetryAt time.Time
	Cause   error // in one of them
}

func (e *ResistingError) Error() string {
	return fmt.Sprintf("policy %s: a row resists in %d of its shards, which were put aside and are tried again after %s: %v",
		e.Policy, e.Shards, e.RetryAt.UTC().Format(time.RFC3339), e.Cause)
}

// Unwrap returns what stood in the way.
func (e *ResistingError) Unwrap() error { return e.Cause }

// target is a policy that Once is to bring to the end of a run.
type target struct {
	PolicySummary
	named bool
	over  bool
	err   error
	// What earlier runs did: a policy that changes meanwhile begins again under its next version.
	deleted, cascaded, batches int64
}

// Once makes one pass: it brings the policies that are due, or those named in now whatever their schedule, to the end of
// one run each. Other executors may help.
//
// It returns what it did, and an error if it did less than it was asked: a *Refusal if nothing may be deleted at all, an
// error for each policy that was stopped, ErrStopping if ctx ended first.
func (e *Executor) Once(ctx context.Context, now []schemas.PolicyName) (Summary, error) {
	defer e.leave()
	begun, answered, wanted := e.now(), e.now(), notAtAll
	pause := pauses{first: 100 * time.Millisecond, last: 5 * time.Second}
	var targets []*target
	for {
		policies, refusal, err := e.read(ctx, wanted)
		if err == nil && refusal != nil {
			err = refusal
		}
		if err == nil && targets == nil {
			targets, err = e.targets(policies, now)
		}
		next := e.now().Add(pause.grow())
		if err == nil {
			pause.reset()
			answered, wanted = e.now(), patience
			next, err = e.pass(ctx, policies, targets, e.now().Sub(begun) < armingPatience)
		}
		if err == nil && areOver(targets) {
			return outcome(targets)
		}
		if err != nil && !e.passesInOnce(err, e.now().Sub(answered), wanted) {
			return summary(targets), stripped("one pass", err)
		}
		if err := wait(ctx, next.Sub(e.now())); err != nil {
			return summary(targets), err
		}
	}
}

// passesInOnce says whether an error is waited out: an auditor that is behind and catching up, and a server that went
// away a short while ago.
func (e *Executor) passesInOnce(err error, unanswered, wanted time.Duration) bool {
	var refusal *Refusal
	if errors.As(err, &refusal) {
		return refusal.Reason == ReasonAuditBehind && e.now().Sub(e.health.advanced) < stallPatience
	}
	return !errors.Is(err, ErrStopping) && wanted != notAtAll && unanswered < patience && e.passes(err)
}

// targets are the named policies, or all that are due or may be when they are armed.
func (e *Executor) targets(policies []planner.InForce, now []schemas.PolicyName) ([]*target, error) {
	targets := []*target{}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(now))) {
		p := find(policies, name)
		if p == nil {
			known := make([]schemas.PolicyName, len(policies))
			for i := range policies {
				known[i] = policies[i].Name
			}
			return nil, &UnknownPolicyError{name, known}
		}
		if p.State != schemas.Armed && p.State != schemas.Arming {
			return nil, &NotArmedError{name, p.State}
		}
		e.memory(p).notBefore = time.Time{}
		t := newTarget(p)
		t.named = true
		targets = append(targets, t)
	}
	if len(now) > 0 {
		return targets, nil
	}
	for i := range policies {
		at, armed := e.due(&policies[i])
		if armed && !at.After(e.now()) || policies[i].State == schemas.Arming {
			targets = append(targets, newTarget(&policies[i]))
		}
	}
	return targets, nil
}

func newTarget(p *planner.InForce) *target {
	return &target{PolicySummary: PolicySummary{Policy: p.Name, Table: p.TableName, Version: p.Version, Outcome: Interrupted}}
}

func find(policies []planner.InForce, name schemas.PolicyName) *planner.InForce {
	for i := range policies {
		if policies[i].Name == name {
			return &policies[i]
		}
	}
	return nil
}

// pass gives each target that is not over one turn. It returns when the next pass should be.
func (e *Executor) pass(ctx context.Context, policies []planner.InForce, targets []*target, patient bool) (time.Time, error) {
	next := e.now().Add(patience)
	for _, t := range targets {
		if t.over {
			continue
		}
		at, err := e.serve(ctx, t, find(policies, t.Policy), patient)
		if err != nil {
			return next, err
		}
		next = earlier(next, at)
	}
	return next, nil
}

func areOver(targets []*target) bool {
	return !slices.ContainsFunc(targets, func(t *target) bool { return !t.over })
}

// serve gives a target a turn if it may have one, and returns when it may have the next.
func (e *Executor) serve(ctx context.Context, t *target, p *planner.InForce, patient bool) (time.Time, error) {
	if p == nil {
		t.end(Outcome(schemas.Dropped), nil)
		return time.Time{}, nil
	}
	if p.Version != t.Version {
		t.Version, t.Run = p.Version, uuid.Nil
		t.deleted, t.cascaded, t.batches = t.Deleted, t.Cascaded, t.Batches
	}
	switch {
	case p.State == schemas.Arming && patient:
		return e.now().Add(healthInterval / 4), nil
	case p.State != schemas.Armed && t.named:
		t.end(Outcome(p.State), &NotArmedError{t.Policy, p.State})
		return time.Time{}, nil
	case p.State != schemas.Armed:
		t.end(Outcome(p.State), nil)
		return time.Time{}, nil
	case t.Run != uuid.Nil && (p.Unfinished == nil || p.Unfinished.ID != t.Run):
		t.end(Finished, nil) // by another executor
		return time.Time{}, nil
	}
	m := e.memory(p)
	if m.notBefore.After(e.now()) {
		return m.notBefore, nil
	}
	end, err := e.turn(ctx, p)
	t.take(&m.tally)
	switch end {
	case turnFinished:
		t.LeftBehind = m.behind
		if m.resists != nil {
			t.end(Resisted, m.resists)
			break
		}
		t.end(Finished, nil)
	case turnStopped:
		t.end(Stopped, m.stopped)
	}
	return m.notBefore, err
}

// take copies what was done.
func (t *target) take(did *tally) {
	t.Run = did.run
	t.Deleted, t.Cascaded, t.Batches = t.deleted+did.deleted, t.cascaded+did.cascaded, t.batches+did.batches
}

func (t *target) end(how Outcome, err error) {
	t.over, t.Outcome, t.err = true, how, err
	if err != nil {
		t.Error = err.Error()
	}
}

// outcome is what Once returns when every target is over.
func outcome(targets []*target) (Summary, error) {
	var errs []error
	for _, t := range targets {
		errs = append(errs, t.err)
	}
	return summary(targets), errors.Join(errs...)
}

func summary(targets []*target) Summary {
	s := Summary{Policies: make([]PolicySummary, len(targets))}
	for i, t := range targets {
		s.Policies[i] = t.PolicySummary
	}
	return s
}
