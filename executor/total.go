package executor

import (
	"context"

	"lapse/executor/batch"
	"lapse/planner/record"
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
