package executor

import (
	"time"

	"github.com/google/uuid"
)

// runCounts is what this process did in one run.
type runCounts struct {
	run                        uuid.UUID
	began                      time.Time
	deleted, cascaded, batches int64
}

// begin says that a turn of a run begins, and reports whether the run is one that this process did not work on last. former is the one
// that it did work on, if it did not see its end.
func (m *policyMemory) begin(run uuid.UUID, now time.Time) (other bool, former *runCounts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.counts.run == run {
		m.open = true
		return false, nil
	}
	if m.open {
		unseen := m.counts
		former = &unseen
	}
	m.open = true
	m.counts, m.cause, m.last = runCounts{run: run, began: now}, nil, Statistics{}
	clear(m.shapes)
	m.spoken, m.logged, m.expected = 0, time.Time{}, 0
	clear(m.searches)
	clear(m.locks)
	clear(m.waits)
	clear(m.causes)
	return true, former
}

// over says that the run of counts has ended.
func (m *policyMemory) over() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.open = false
}

// unseen is the run that this process worked on last, if it did not see its end; else nil.
func (m *policyMemory) unseen() *runCounts {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.open {
		return nil
	}
	counts := m.counts
	return &counts
}

// add counts a durable batch.
func (m *policyMemory) add(done *result) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := &m.counts
	c.deleted, c.cascaded, c.batches = c.deleted+done.deleted, c.cascaded+done.cascaded, c.batches+1
}

// done returns the counts.
func (m *policyMemory) done() runCounts {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counts
}

// did takes down what the run did by all executors.
func (m *policyMemory) did(st *Statistics) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = *st
}

// statistics returns what the run did by all executors, when somebody asked last.
func (m *policyMemory) statistics() Statistics {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last
}
