package executor

import (
	"log/slog"
	"time"

	"github.com/google/uuid"

	"lapse/executor/batch"
	"lapse/schemas"
)

// Progress says how far this process is with a run.
type Progress struct {
	Policy   schemas.PolicyName
	Table    string
	Run      uuid.UUID
	Deleted  int64   // from the policy's table
	Cascaded int64   // by foreign keys
	Rate     float64 // rows of both kinds per second
	// Expected is how many rows of the table were due when the run began, by a count or by PostgreSQL's estimate; 0: not known.
	Expected int64
	Held     string // why batches are slowed down, "" if they are not
}

// Remaining estimates how long the rest takes at the rate so far; false if that is not known.
func (p *Progress) Remaining() (time.Duration, bool) {
	rest := p.Expected - p.Deleted
	if p.Deleted == 0 || rest <= 0 || p.Rate <= 0 {
		return 0, false
	}
	perRow := float64(p.Deleted+p.Cascaded) / float64(p.Deleted)
	return time.Duration(float64(rest) * perRow / p.Rate * float64(time.Second)), true
}

// count adds a durable batch to the counters, and reports progress.
func (w *worker) count(t *turn, done *batch.Result) {
	w.guards.memory.Unconfirmed.Ended(w.now())
	w.metrics.committed(t.policy, done)
	t.memory.run.change(func(r *runFacts) { r.add(done) })
	w.total(t.policy, done)
	if done.Picked > 0 || w.config.Progress != nil {
		w.showProgress(t, "")
	}
}

// showProgress reports the progress of the turn's run. held is why it is slowed down, if no guard says so.
func (w *worker) showProgress(t *turn, held string) {
	p, m := t.policy, t.memory
	c := m.run.now()
	if m.run.first(sayBegins) {
		expecting(w.log, c.expected).Info("run deletes", "policy", p.Name, "version", p.Version, "run", c.run)
	}
	progress := Progress{Policy: p.Name, Table: p.TableName, Run: c.run, Deleted: c.deleted, Cascaded: c.cascaded, Expected: c.expected, Held: held}
	w.metrics.backlog.goesOn(p, progress.Expected, c.deleted)
	if took := w.now().Sub(c.began); took > 0 {
		progress.Rate = float64(c.deleted+c.cascaded) / took.Seconds()
	}
	if held == "" {
		progress.Held = m.pauses.now().throttled
	}
	if w.config.Progress == nil {
		if m.run.progressIsDue(w.now()) {
			expecting(w.log, progress.Expected).Info("run goes on", "policy", p.Name, "run", c.run, "deleted", c.deleted, "cascaded", c.cascaded,
				"rows_per_second", int64(progress.Rate), "held_back_by", progress.Held)
		}
		return
	}
	w.progress.Lock()
	defer w.progress.Unlock()
	w.config.Progress(progress)
}

// expecting returns the log with the number of rows that a run is to delete. It is not known for a run that another process began.
func expecting(log *slog.Logger, rows int64) *slog.Logger {
	if rows == 0 {
		return log
	}
	return log.With("expected", rows)
}
