package executor

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"lapse/executor/batch"
	"lapse/planner/record"
	"lapse/schemas"
)

// total counts a durable batch for Summary.
func (e *Executor) total(p *record.InForce, done *batch.Result) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.totals[p.Name]
	if s == nil {
		s = &PolicySummary{}
		e.totals[p.Name] = s
	}
	s.Policy, s.Table, s.Version = p.Name, p.TableName, p.Version
	s.Deleted, s.Cascaded, s.Batches = s.Deleted+done.Deleted, s.Cascaded+done.Cascaded, s.Batches+1
}

// seed lets the counters of deleted rows begin with what is on record of all executors' runs, once: a process that was started again is none
// that has deleted nothing.
func (w *worker) seed(ctx context.Context) {
	w.seeding.Lock()
	defer w.seeding.Unlock()
	if w.seeded || w.deletedSome() {
		return // what this process deleted is counted, and on record
	}
	totals, err := record.Totals(ctx, w.session.Control)
	if err != nil {
		w.log.Warn("what was deleted before is not counted yet", "error", stripped("count", err))
		return
	}
	w.seeded = true
	for _, t := range totals {
		w.metrics.deleted.WithLabelValues(string(t.Policy), t.Table).Add(float64(t.Deleted))
		w.metrics.cascaded.WithLabelValues(string(t.Policy), t.Table).Add(float64(t.Cascaded))
	}
}

func (e *Executor) deletedSome() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.totals) > 0
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
