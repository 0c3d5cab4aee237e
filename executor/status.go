package executor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"lapse/executor/guard"
	"lapse/planner"
	"lapse/schemas"
)

// PolicyStatus is how a policy stands, for a status page.
type PolicyStatus struct {
	Policy      schemas.PolicyName    `json:"policy"`
	Table       string                `json:"table"`
	Version     schemas.PolicyVersion `json:"version"`
	State       schemas.State         `json:"state"` // the gate's, or "stopped"
	Stopped     string                `json:"stopped,omitempty"`
	Cause       Cause                 `json:"cause,omitempty"` // of the stop, in a word
	Until       time.Time             `json:"until,omitzero"`  // when a stopped policy is tried again
	Quarantined int64                 `json:"rows_in_quarantine,omitempty"`
	NoIndex     string                `json:"no_index,omitempty"` // what is so without an index that is missing
	Resists     string                `json:"resists,omitempty"`  // what was put aside because a row resists
	// Throttled is why its batches are held back in the run that is under way: throttlePace, or a guard's reason; throttleLock
	// before it is begun; "" for not at all.
	Throttled string `json:"throttled,omitempty"`
	// Share is the part of the time in which each worker's batches run at gentle pace, and BatchRows the size that batches have
	// come to. Both are zero before the first batch.
	Share     float64 `json:"share,omitempty"`
	BatchRows int     `json:"batch_rows,omitempty"`
}

// Ready returns nil while policies get their turns, and otherwise why they do not: all of them, or those that are stopped
// by name.
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
		if s := &e.status[i]; s.Stopped != "" {
			why := strings.TrimPrefix(s.Stopped, fmt.Sprintf("policy %s: ", s.Policy))
			stopped = append(stopped, fmt.Errorf("policy %s is stopped: %s", s.Policy, why))
		}
	}
	return errors.Join(stopped...)
}

func (e *Executor) setReady(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ready, e.paused = err, ""
}

// answered takes what the guards say of the whole database. That a person has paused every deletion is nothing that the process could do
// better: it is ready, and says so.
func (e *Executor) answered(a *guard.Answer) {
	e.metrics.allPaused(a)
	if !a.Paused() {
		e.setReady(a.Err())
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ready, e.paused = nil, a.Detail
}

// Paused is who paused every deletion in the database, when and why; "" while nobody has. Safe for concurrent use.
func (e *Executor) Paused() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.paused
}

// Status returns how each policy stood when the list was last read.
func (e *Executor) Status() []PolicyStatus {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.status)
}

// observe takes the list down for Status and metrics, and forgets what is no longer in force. It returns, of the versions that it
// forgets, those whose run this process worked on without seeing its end.
func (e *Executor) observe(policies []planner.InForce) (cut []*policyMemory) {
	inForce := map[versionKey]bool{}
	names := map[schemas.PolicyName]bool{}
	status := make([]PolicyStatus, 0, len(policies))
	for i := range policies {
		p := &policies[i]
		inForce[versionKey{p.ID, p.Version}], names[p.Name] = true, true
		m, line := e.memory(p), PolicyStatus{Policy: p.Name, Table: p.TableName, Version: p.Version, State: p.State}
		is, run := m.pauses.now(), m.run.now()
		switch {
		case p.State != schemas.Armed:
		case is.stopped != nil:
			line.State, line.Stopped, line.Cause, line.Until = stateStopped, is.stopped.Error(), CauseOf(is.stopped), is.until
		case p.Trouble != "":
			line.State, line.Stopped, line.Cause = stateStopped, p.Trouble+": "+p.Remedy(), CauseTable
		}
		if run.resists != nil {
			line.Resists = run.resists.Error()
		}
		line.Quarantined, line.NoIndex = p.Quarantine.Rows, m.index.now().missing
		e.metrics.resting(p, e.now())
		line.Throttled, line.Share, line.BatchRows = is.throttled, is.share, m.sizing.rows()
		e.metrics.in(p, line.State)
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
		if !names[m.name] {
			e.metrics.forget(m.name)
		}
	}
	return cut
}

// showStopped enters a stop in the list at once, so that readiness does not wait for the next list.
func (e *Executor) showStopped(p *planner.InForce, err error, until time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.status {
		if e.status[i].Policy == p.Name {
			e.status[i].State, e.status[i].Stopped, e.status[i].Cause, e.status[i].Until = stateStopped, err.Error(), CauseOf(err), until
		}
	}
}
