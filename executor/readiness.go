package executor

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"lapse/executor/guard"
	"lapse/planner/record"
	"lapse/schemas"
)

// policyStatus is a policy's state when the list was last read, for readiness and summaries.
type policyStatus struct {
	policy  schemas.PolicyName
	table   string
	version schemas.PolicyVersion
	state   schemas.State // the state of the gate, or "stopped"
	stopped string
	cause   Cause     // why it is stopped
	until   time.Time // when a stopped policy is tried again
}

// Ready returns nil while policies get their turns, and otherwise why they do not: all of them, or the stopped ones by name.
func (e *Executor) Ready() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ready != nil {
		return e.ready
	}
	if err := e.guards.blind(e.now()); err != nil {
		return err
	}
	var stopped []error
	for i := range e.status {
		if s := &e.status[i]; s.stopped != "" {
			why := strings.TrimPrefix(s.stopped, fmt.Sprintf("policy %s: ", s.policy))
			stopped = append(stopped, fmt.Errorf("policy %s is stopped: %s", s.policy, why))
		}
	}
	return errors.Join(stopped...)
}

func (e *Executor) setReady(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ready, e.paused = err, ""
}

// answered records the guards' answer for the whole database. If a person has paused every deletion, the process is still ready: there is
// nothing it could do better. Paused reports it.
func (e *Executor) answered(a *guard.Answer) {
	e.metrics.answered(a)
	if !a.Paused() {
		e.setReady(a.Err())
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ready, e.paused = nil, a.Detail
}

// Paused returns who paused every deletion in the database, when and why; "" if nobody did. Safe for concurrent use.
func (e *Executor) Paused() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.paused
}

// observe records the list for readiness, summaries and metrics, and forgets versions that are no longer in force. It returns those of them
// whose run this process worked on without seeing its end.
func (e *Executor) observe(policies []record.InForce) (cut []*policyMemory) {
	e.metrics.inForce(policies, e.now())
	inForce := map[versionKey]bool{}
	status := make([]policyStatus, 0, len(policies))
	for i := range policies {
		p := &policies[i]
		inForce[versionKey{p.ID, p.Version}] = true
		is, line := e.memory(p).pauses.now(), policyStatus{policy: p.Name, table: p.TableName, version: p.Version, state: p.State}
		switch {
		case p.State != schemas.Armed:
		case is.stopped != nil:
			line.state, line.stopped, line.cause, line.until = stateStopped, is.stopped.Error(), CauseOf(is.stopped), is.until
		case p.Trouble != "":
			line.state, line.stopped, line.cause = stateStopped, p.Trouble+": "+p.Remedy(), CauseTable
		}
		e.metrics.inQuarantine(p, e.now())
		e.metrics.in(p, line.state)
		status = append(status, line)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.status = status
	for key, m := range e.known {
		if !inForce[key] {
			delete(e.known, key)
			if m.run.now().open {
				cut = append(cut, m)
			}
		}
	}
	return cut
}

// showStopped enters a stop in the status at once, so that readiness does not wait for the next list.
func (e *Executor) showStopped(p *record.InForce, err error, until time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.status {
		if e.status[i].policy == p.Name {
			e.status[i].state, e.status[i].stopped, e.status[i].cause, e.status[i].until = stateStopped, err.Error(), CauseOf(err), until
		}
	}
}
