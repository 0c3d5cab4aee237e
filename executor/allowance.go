package executor

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"lapse/executor/batch"
)

// lapse.take_rows decides in the database, for all executors together, how many rows a policy's rate and max_rows_per_run leave for a
// batch. A worker takes rows before BEGIN, and gives back after the batch what it did not delete.
//
//	crash between taking and BEGIN    no executor can delete these rows until the lease has ended
//	crash after COMMIT                the same, for the rows to be given back

// The reasons of limits: labels of limit_reached_total and throttle_seconds_total.
const (
	limitMaxRows = "max_rows_per_run"
	limitRate    = "rate"
	limitAccept  = "accepted" // the rows that a person allowed after the breaker opened
)

// limited reports whether a batch must take rows from limits at all.
func (t *turn) limited() bool { return t.policy.Limits.Rate > 0 || t.begun().Most > 0 }

// endRun ends a run that has reached a limit. It returns false if another worker ended it first. Durable when it returns.
func endRun(ctx context.Context, conn *pgx.Conn, run uuid.UUID, reason string) (ended bool, err error) {
	if err = conn.QueryRow(ctx, `select lapse.end_run($1, $2)`, run, reason).Scan(&ended); err != nil {
		return false, fmt.Errorf("end run %v: %w", run, err)
	}
	return ended, nil
}

// allow returns how many of the wanted rows the next batch may delete. If it is none, end says how the turn ends.
func (w *worker) allow(ctx context.Context, t *turn, l *batch.Lease, wanted int) (rows int, end turnEnd, err error) {
	rows, until := w.pass.take(wanted, w.now())
	switch {
	case rows == 0:
		return 0, w.passOver(t, until), nil
	case !t.limited():
		return rows, turnGoesOn, nil
	}
	a, err := w.session.TakeRows(ctx, l, rows)
	w.pass.giveBack(rows - a.Rows)
	switch {
	case err != nil:
		return 0, turnGoesOn, err
	case a.Over:
		return 0, turnLimited, w.endRun(ctx, t, l)
	case a.Rows == 0:
		w.postpone(t, limitRate, w.now().Add(a.Pause))
		return 0, turnMore, nil
	}
	return a.Rows, turnGoesOn, nil
}

// passOver ends a turn because the pass has no rows left.
func (w *worker) passOver(t *turn, until time.Time) turnEnd {
	why := fmt.Sprintf("%s: %s of all policies %s deleted, and the rest waits for the next pass", limitPass, rowsOf(w.pass.most), were(w.pass.most))
	w.metrics.limited(t.policy, limitPass)
	t.reachedLimit(why)
	if until.IsZero() {
		return turnLimited
	}
	t.holds(why, nil)
	w.postpone(t, limitPass, until)
	return turnMore
}

// endRun ends the turn's run at its limit.
func (w *worker) endRun(ctx context.Context, t *turn, l *batch.Lease) error {
	reason := t.runLimit()
	first, err := endRun(ctx, w.session.Control, l.Run, reason)
	if err != nil {
		return err
	}
	t.memory.run.change(func(r *runFacts) { r.open = false })
	t.reachedLimit(t.limitText())
	if first {
		w.metrics.limited(t.policy, reason)
		w.log.Info("run ends at its limit", "policy", t.policy.Name, "run", l.Run, "limit", reason, "rows", t.begun().Most)
	}
	return nil
}

// postpone makes a policy wait because a limit leaves it no rows before an instant.
func (w *worker) postpone(t *turn, limit string, until time.Time) {
	t.memory.pauses.change(func(d *delay) { d.until, d.throttled = until, limit })
	w.showProgress(t, limit)
	w.metrics.throttled.WithLabelValues(string(t.policy.Name), t.policy.TableName, limit).Add(until.Sub(w.now()).Seconds())
}

// runLimit names the limit on the rows of the turn's run.
func (t *turn) runLimit() string {
	if run := t.begun(); run.Accepted > 0 && run.Most >= run.Accepted {
		return limitAccept
	}
	return limitMaxRows
}

// limitText tells a person that the run may delete no more rows.
func (t *turn) limitText() string {
	reason, then := t.runLimit(), "the next run goes on"
	if reason == limitAccept {
		then = "more need another yes"
	}
	most := t.begun().Most
	return fmt.Sprintf("%s: %s %s deleted, and %s", reason, rowsOf(most), were(most), then)
}

// reachedLimit records which limit was reached.
func (t *turn) reachedLimit(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limit = what
}

// rowsOf formats a number of rows for a person.
func rowsOf(n int64) string {
	if n == 1 {
		return "1 row"
	}
	return fmt.Sprintf("%d rows", n)
}

// were returns the verb for a number of rows.
func were(n int64) string {
	if n == 1 {
		return "was"
	}
	return "were"
}

// giveRowsBack returns the rows that a batch was allowed and did not delete. If that fails, they are free again when the lease ends.
func (w *worker) giveRowsBack(ctx context.Context, t *turn, l *batch.Lease, rows int) {
	if rows <= 0 {
		return
	}
	w.pass.giveBack(rows)
	if !t.limited() || w.session.Lost() {
		return
	}
	if _, err := w.session.TakeRows(ctx, l, -rows); err != nil {
		w.log.Warn("rows that a batch did not delete count as deleted for a while", "policy", t.policy.Name, "rows", rows, "error", stripped("give back", err))
	}
}
