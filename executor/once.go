package executor

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"

	"lapse/executor/guard"
	"lapse/planner/record"
	"lapse/schemas"
)

const (
	// armingPatience is how long Once waits for the auditor to pass the position of an arming policy.
	armingPatience = 10 * time.Second
	// armingInterval is how often Once checks that meanwhile.
	armingInterval = factsInterval / 4
	// serverPatience is how long Once waits for a server that stopped answering.
	serverPatience = time.Minute
)

// Once brings the policies that are due to the end of one run each, or those named in now whether they are due or not. Other executors
// may help.
//
// It returns what it did, and an error if it did less than it was asked: a *guard.Refusal if nothing may be deleted at all,
// an error for each policy that was stopped, ErrStopping if ctx ended first.
func (e *Executor) Once(ctx context.Context, now []schemas.PolicyName) (Summary, error) {
	o := &onceGoal{Executor: e, names: now, begun: e.now(), looks: true}
	if !e.opened.Mute() {
		o.answered = o.begun // to what the caller has checked
	}
	return e.once(ctx, o)
}

func (e *Executor) once(ctx context.Context, o *onceGoal) (Summary, error) {
	err := e.schedule(ctx, o)
	switch {
	case errors.Is(err, ErrStopping):
		return o.summary(), ErrStopping
	case err != nil:
		return o.summary(), stripped("one pass", err)
	}
	return o.outcome()
}

// onceGoal is Once's goal: each of its targets comes to the end of one run, or cannot go on.
type onceGoal struct {
	*Executor
	names    []schemas.PolicyName
	begun    time.Time
	answered time.Time // when the list was last read; zero: never
	chosen   bool      // the targets are chosen
	looks    bool      // turns read the whole table: a person who asks for a run wants no shortcuts
	arming   bool      // a target was arming at the last reading, and Once waits for it
	targets  []*target
	refused  []reportLine // the policies, if nothing may be deleted at all
}

// target is a policy that Once is to bring to the end of a run.
type target struct {
	PolicySummary
	id    schemas.PolicyID
	named bool
	whole bool // it had a turn that read its whole table
	over  bool
	err   error
	// Counts of its earlier runs: a policy that changes meanwhile starts again under its next version.
	deleted, cascaded, batches int64
}

// listed chooses the targets from the first list, and updates them from each later one.
func (o *onceGoal) listed(policies []record.InForce, a *guard.Answer, fresh func(schemas.PolicyID) bool) error {
	if a.Verdict == guard.Refuse {
		o.refuse(policies, a)
		return a.Err()
	}
	o.answered = o.now()
	if a.Stops() {
		return nil
	}
	if !o.chosen {
		if err := o.choose(policies); err != nil {
			return err
		}
		o.chosen = true
	}
	o.arming = false
	for _, t := range o.targets {
		switch p := find(policies, t.Policy); {
		case t.over:
		case p == nil:
			t.end(Outcome(schemas.Dropped), nil)
		case fresh(p.ID):
			o.follow(t, p)
		}
	}
	return nil
}

// refuse records the policies that may delete nothing.
func (o *onceGoal) refuse(policies []record.InForce, a *guard.Answer) {
	whole := stopsAll(a)
	for i := range policies {
		p := &policies[i]
		at, armed := o.nextTurn(p)
		if armed && (slices.Contains(o.names, p.Name) || len(o.names) == 0 && !at.After(o.now())) {
			o.refused = append(o.refused, reportLine{policy: p.ID, state: isStopped, reason: whole.Detail, held: whole.Reason})
		}
	}
}

// lastLines says for each target why it was stopped, or that it was not.
func (o *onceGoal) lastLines() []reportLine {
	lines := o.refused
	for _, t := range o.targets {
		line := reportLine{policy: t.id, state: string(t.Outcome)}
		if t.Outcome == Stopped && !guard.ByBreaker(t.err) { // the catalog says that it is open
			line.held, line.reason = reasonOfStop(t.err), t.Error
		}
		if !slices.ContainsFunc(lines, func(l reportLine) bool { return l.policy == t.id }) {
			lines = append(lines, line)
		}
	}
	return lines
}

// choose takes the named policies; without names, all that are due, or may be due once they are armed.
func (o *onceGoal) choose(policies []record.InForce) error {
	for _, name := range slices.Compact(slices.Sorted(slices.Values(o.names))) {
		p := find(policies, name)
		if p == nil {
			known := make([]schemas.PolicyName, len(policies))
			for i := range policies {
				known[i] = policies[i].Name
			}
			return &UnknownPolicyError{name, known}
		}
		if p.State != schemas.Armed && p.State != schemas.Arming {
			return &NotArmedError{name, p.State}
		}
		o.memory(p).pauses.change(func(d *delay) { d.until = time.Time{} })
		t := newTarget(p)
		t.named = true
		o.targets = append(o.targets, t)
	}
	if len(o.names) > 0 {
		return nil
	}
	for i := range policies {
		at, armed := o.nextTurn(&policies[i])
		if armed && !at.After(o.now()) || policies[i].State == schemas.Arming {
			o.targets = append(o.targets, newTarget(&policies[i]))
		}
	}
	return nil
}

func newTarget(p *record.InForce) *target {
	return &target{id: p.ID, PolicySummary: PolicySummary{Policy: p.Name, Table: p.TableName, Version: p.Version, Outcome: Interrupted}}
}

func find(policies []record.InForce, name schemas.PolicyName) *record.InForce {
	for i := range policies {
		if policies[i].Name == name {
			return &policies[i]
		}
	}
	return nil
}

// follow updates a target from its policy's entry in the list.
func (o *onceGoal) follow(t *target, p *record.InForce) {
	if p.Version != t.Version {
		t.Version, t.Run = p.Version, uuid.Nil
		t.deleted, t.cascaded, t.batches = t.Deleted, t.Cascaded, t.Batches
	}
	switch {
	case p.State == schemas.Arming && o.now().Sub(o.begun) < armingPatience:
		o.arming = true
	case p.State != schemas.Armed && t.named:
		t.end(Outcome(p.State), &NotArmedError{t.Policy, p.State})
	case p.State != schemas.Armed:
		t.end(Outcome(p.State), nil)
	case t.Run != uuid.Nil && (p.Unfinished == nil || p.Unfinished.ID != t.Run):
		t.end(Finished, nil) // by another executor
	}
}

func (o *onceGoal) target(name schemas.PolicyName) *target {
	for _, t := range o.targets {
		if t.Policy == name && !t.over {
			return t
		}
	}
	return nil
}

// due lets each target have turns until its run is over, whatever its schedule says.
func (o *onceGoal) due(p *record.InForce) (time.Time, bool) {
	if o.target(p.Name) == nil || p.State != schemas.Armed {
		return time.Time{}, false
	}
	return o.memory(p).pauses.now().until, true
}

// shares is false: no look of Once leaves out a part of the table, and each target ends with a turn of its own.
func (*onceGoal) shares(*record.InForce) bool { return false }

func (o *onceGoal) whole(p *record.InForce) bool {
	t := o.target(p.Name)
	if t == nil || t.whole {
		return false
	}
	t.whole = true
	return o.looks
}

func (o *onceGoal) ended(t *turn) {
	target := o.target(t.policy.Name)
	if target == nil {
		return
	}
	run := t.memory.run.now()
	if t.begun() != nil {
		target.take(run.runCounts)
	}
	if t.begun() != nil || target.Run == uuid.Nil { // a look that comes after another executor ended the run does not cover that run
		target.Whole = run.whole
	}
	switch t.end {
	case turnFinished:
		target.LeftBehind = run.leftLocked
		if run.resists != nil {
			target.Obstacles = obstaclesOf(run.resists)
			target.end(Resisted, run.resists)
			return
		}
		target.end(Finished, nil)
	case turnStopped:
		target.end(Stopped, t.memory.pauses.now().stopped)
	case turnLimited:
		target.Limit = t.limit
		target.end(Limited, nil)
	case turnRefused:
		if t.refusal != nil {
			target.end(Stopped, t.refusal)
		}
	}
}

func (o *onceGoal) reached() bool {
	return o.chosen && !slices.ContainsFunc(o.targets, func(t *target) bool { return !t.over })
}

func (o *onceGoal) reread() time.Duration {
	if o.arming {
		return armingInterval
	}
	return rereadInterval
}

// patience is for a server that stopped answering. Once does not wait for one that never answered.
func (o *onceGoal) patience() time.Duration {
	if o.answered.IsZero() {
		return notAtAll
	}
	return serverPatience
}

func (o *onceGoal) outlasts(err error, lost bool) bool {
	var refusal *guard.Refusal
	return !errors.As(err, &refusal) && !o.answered.IsZero() && o.now().Sub(o.answered) < serverPatience && o.Executor.outlasts(err, lost)
}

// take copies the counts of a run. If others ended the run before, and this process helped with both, both count.
func (t *target) take(did runCounts) {
	if t.Run != uuid.Nil && t.Run != did.run {
		t.deleted, t.cascaded, t.batches = t.Deleted, t.Cascaded, t.Batches
	}
	t.Run = did.run
	t.Deleted, t.Cascaded, t.Batches = t.deleted+did.deleted, t.cascaded+did.cascaded, t.batches+did.batches
}

func (t *target) end(how Outcome, err error) {
	t.over, t.Outcome, t.err = true, how, err
	if err != nil {
		t.Error = err.Error()
	}
}

// outcome returns what Once returns when every target is over.
func (o *onceGoal) outcome() (Summary, error) {
	var errs []error
	for _, t := range o.targets {
		errs = append(errs, t.err)
	}
	return o.summary(), errors.Join(errs...)
}

func (o *onceGoal) summary() Summary {
	s := Summary{Policies: make([]PolicySummary, len(o.targets))}
	for i, t := range o.targets {
		s.Policies[i] = t.PolicySummary
	}
	return s
}
