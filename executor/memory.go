package executor

import (
	"fmt"
	"time"

	"lapse/executor/batch"
	"lapse/internal/backoff"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/schemas"
)

// versionKey identifies a policy version. What is learned of one version does not carry over to the next.
type versionKey struct {
	id      schemas.PolicyID
	version schemas.PolicyVersion
}

// policyMemory is what this process remembers of a policy version, in parts that each remember one thing. It affects only the size of
// batches, pauses and counters. Safe for concurrent use.
type policyMemory struct {
	name     schemas.PolicyName
	programs programs
	pauses   pauses
	sizing   sizing
	locks    locks
	run      runMemory
	quiet    quiet
	index    indexMemory
	counting shared[countTimes]
}

func newPolicyMemory(p *record.InForce, c *batch.Catalog) *policyMemory {
	return &policyMemory{
		name:     p.Name,
		programs: newPrograms(p, c),
		pauses:   pauses{backoff: backoff.Backoff{Min: 50 * time.Millisecond, Max: 10 * time.Second}},
		sizing:   sizing{searches: map[int64]*search{}, shapes: shapes{}},
		locks:    locks{tries: map[int64]int{}, waiting: map[int64]bool{}},
		run:      runMemory{causes: map[ServerError]bool{}},
		quiet:    quiet{leaves: map[uint32]run.Quiet{}},
	}
}

// memory returns the memory of a policy version.
func (e *Executor) memory(p *record.InForce) *policyMemory {
	e.mu.Lock()
	defer e.mu.Unlock()
	key := versionKey{p.ID, p.Version}
	m := e.known[key]
	if m == nil {
		m = newPolicyMemory(p, e.catalog)
		e.known[key] = m
	}
	return m
}

// nextTurn returns when an armed policy is to have its next turn.
func (e *Executor) nextTurn(p *record.InForce) (at time.Time, armed bool) {
	if p.State != schemas.Armed {
		return time.Time{}, false
	}
	m := e.memory(p)
	at, err := p.NextRunSince(m.quiet.looked(p)) // asked for each policy before each turn: a copy for each would be most of what is allocated
	if err != nil && !m.pauses.now().until.After(e.now()) {
		e.stop(p, fmt.Errorf("find the next run: %w", err))
	}
	if until := m.pauses.now().until; until.After(at) {
		at = until
	}
	return at, true
}

// begin records that a turn of a run begins. other reports whether this process worked on a different run before. former is that run, if
// this process did not see its end.
func (m *policyMemory) begin(run *record.Run, expected int64, now time.Time) (other bool, former *runCounts) {
	other, former = m.run.begin(run.ID, expected, now)
	if other {
		m.sizing.forget()
		m.locks.forget()
	}
	return other, former
}

// through records a durable batch on a shard.
func (m *policyMemory) through(p *record.InForce, shard int64, o batch.Order, done *batch.Result, wanted time.Duration) {
	m.pauses.wentWell()
	if searched := m.sizing.through(p, shard, o, done, wanted); !searched {
		m.locks.got(shard)
	}
}

// finish records what a run left at its end.
func (m *policyMemory) finish(p *record.InForce, left *runState, rest quarantined) {
	m.run.finish(p.Name, left, rest)
	m.pauses.finish()
	m.locks.finish(left)
}

// foundNothing records that a look found nothing due. It reports whether to write that to the catalog, where noted is when it was last
// written.
func (m *policyMemory) foundNothing(noted, now time.Time) bool {
	m.run.change(func(r *runFacts) { *r = runFacts{} })
	m.pauses.wentWell()
	return m.quiet.foundNothing(noted, now)
}
