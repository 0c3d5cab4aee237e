package executor

import (
	"time"

	"github.com/google/uuid"

	"lapse/executor/batch"
	"lapse/planner/record"
	"lapse/schemas"
)

// runCounts is what this process did in one run.
type runCounts struct {
	run                        uuid.UUID
	began                      time.Time
	deleted, cascaded, batches int64
}

// add counts a durable batch.
func (c *runCounts) add(done *batch.Result) {
	c.deleted, c.cascaded, c.batches = c.deleted+done.Deleted, c.cascaded+done.Cascaded, c.batches+1
}

// runFacts is what this process knows of its current run, or of its last one.
type runFacts struct {
	runCounts
	open     bool       // this process has not seen its end
	cause    error      // why this process put a shard aside in it; nil if it did not
	expected int64      // number of rows to delete; 0: not known
	whole    Statistics // what all executors did in it, when last read
	// After the last run ended: whether due rows were left because they were locked, and what was put aside; nil for nothing.
	leftLocked bool
	resists    error
}

// at reports whether this process worked on a run and has not seen its end.
func (f *runFacts) at(run *record.Run) bool { return run != nil && f.run == run.ID && f.open }

// runMemory remembers a policy's run. Safe for concurrent use.
type runMemory struct {
	shared[runFacts]
	causes map[ServerError]bool // why rows of this run were entered in the quarantine
	logged int                  // bits of what was logged of the run: sayBegins and the like
	// progressAt is when progress was last logged.
	progressAt time.Time
}

// begin is policyMemory.begin for this part.
func (r *runMemory) begin(run uuid.UUID, expected int64, now time.Time) (other bool, former *runCounts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.is.run == run {
		r.is.open = true
		return false, nil
	}
	if r.is.open {
		unseen := r.is.runCounts
		former = &unseen
	}
	r.is = runFacts{runCounts: runCounts{run: run, began: now}, open: true, expected: expected, leftLocked: r.is.leftLocked, resists: r.is.resists}
	r.logged, r.progressAt = 0, now
	clear(r.causes)
	return true, former
}

// finish records what a run left at its end.
func (r *runMemory) finish(policy schemas.PolicyName, left *runState, rest quarantined) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.is.open, r.is.leftLocked, r.is.resists = false, left.lockedRows, nil
	if left.aside == 0 && rest.rows == 0 {
		return
	}
	resists := &ResistingError{Policy: policy, Rows: rest.rows, Obstacles: rest.obstacles}
	if left.aside > 0 {
		if r.is.cause == nil { // another process tried it
			r.is.cause = &ServerError{SQLState: left.state}
		}
		resists.Shards, resists.RetryAt, resists.Cause = left.aside, *left.retryAt, r.is.cause
	}
	r.is.resists = resists
}

// newCause reports whether no other row of the run was entered in the quarantine for this cause.
func (r *runMemory) newCause(cause *ServerError) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.causes[*cause] {
		return false
	}
	r.causes[*cause] = true
	return true
}

// What is logged once in a run.
const (
	sayBegins = 1 << iota
	sayHalved
	sayResists
)

// first reports whether this is the first time in the run, and records it.
func (r *runMemory) first(what int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := r.logged&what == 0
	r.logged |= what
	return first
}

// progressInterval is how often progress is logged, if nothing else shows it.
const progressInterval = 30 * time.Second

// progressIsDue reports whether it is time to log how far the run is.
func (r *runMemory) progressIsDue(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.progressAt) < progressInterval {
		return false
	}
	r.progressAt = now
	return true
}
