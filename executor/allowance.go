package executor

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"

	"lapse/executor/guard"
)

// What a policy's rate and max_rows_per_run leave of a batch is decided in the database, for all executors together: see
// lapse.take_rows. Rows are taken before BEGIN, and what a batch did not delete is given back behind it.
//
//	crash between taking and BEGIN    nobody deletes these rows until the lease has ended
//	crash behind COMMIT               the same, for what was to be given back

// The reasons of limits: labels of limit_reached_total and throttle_seconds_total.
const (
	limitMaxRows = "max_rows_per_run"
	limitRate    = "rate"
	limitAccept  = "accepted" // what somebody let go whom the breaker had asked
)

// allowance is what a batch is allowed.
type allowance struct {
	rows  int
	pause time.Duration // without rows: how soon to ask again
	over  bool          // the run may delete no more
}

// limited reports whether rows have to be taken at all.
func (t *turn) limited() bool { return t.policy.Limits.Rate > 0 || t.begun().Most > 0 }

// takeRows asks for rows for a batch on a leased shard. A negative number gives them back.
func (s *session) takeRows(ctx context.Context, l *lease, wanted int) (allowance, error) {
	var a allowance
	var pause *time.Duration
	err := s.control.QueryRow(ctx, `select granted, pause, over from lapse.take_rows($1, $2, $3, $4)`, l.shard, l.term, s.holder, wanted).
		Scan(&a.rows, &pause, &a.over)
	if err != nil {
		return a, fmt.Errorf("take rows from the policy's limits: %w", err)
	}
	if pause != nil {
		a.pause = *pause
	}
	return a, nil
}

// endRun ends a run that has reached a limit, and reports whether nobody else had. Durable when it returns.
func (s *session) endRun(ctx context.Context, run uuid.UUID, reason string) (ended bool, err error) {
	if err = s.control.QueryRow(ctx, `select lapse.end_run($1, $2)`, run, reason).Scan(&ended); err != nil {
		return false, fmt.Errorf("end run %v: %w", run, err)
	}
	return ended, nil
}

// allow says how many rows the next batch may take. The turn does not go on where there are none.
func (w *worker) allow(ctx context.Context, t *turn, l *lease) (rows int, end turnEnd, err error) {
	p, m := t.policy, t.memory
	rows, until := w.pass.take(m.sizing.limit(p), w.now())
	switch {
	case rows == 0:
		return 0, w.passOver(t, until), nil
	case !t.limited():
		return rows, turnGoesOn, nil
	}
	a, err := w.session.takeRows(ctx, l, rows)
	w.pass.giveBack(rows - a.rows)
	if err != nil {
		end, err = w.trouble(t, err, 1)
		return 0, end, err
	}
	switch {
	case a.over:
		reason := t.runLimit()
		first, err := w.session.endRun(ctx, l.run, reason)
		if err != nil {
			end, err = w.trouble(t, err, 1)
			return 0, end, err
		}
		m.run.over()
		t.limit(t.limitReached())
		if first {
			w.metrics.limited(p, reason)
			w.log.Info("run ends at its limit", "policy", p.Name, "run", l.run, "limit", reason, "rows", t.begun().Most)
		}
		return 0, turnLimited, nil
	case a.rows == 0:
		m.pauses.wait(w.now().Add(a.pause))
		m.pauses.throttle(limitRate)
		w.showProgress(t, limitRate)
		w.metrics.throttled.WithLabelValues(string(p.Name), p.TableName, limitRate).Add(a.pause.Seconds())
		return 0, turnMore, nil
	}
	return a.rows, turnGoesOn, nil
}

// runLimit is what bounds the rows of the turn's run.
func (t *turn) runLimit() string {
	if run := t.begun(); run.Accepted > 0 && run.Most >= run.Accepted {
		return limitAccept
	}
	return limitMaxRows
}

// limitReached says to a person that the run may delete no more.
func (t *turn) limitReached() string {
	reason, then := t.runLimit(), "the next run goes on"
	if reason == limitAccept {
		then = "more need another yes"
	}
	return fmt.Sprintf("%s: %s went, and %s", reason, rowsOf(t.begun().Most), then)
}

// giveRowsBack returns what a batch was allowed and did not delete. Where that fails they come back
// when the lease has ended.
func (w *worker) giveRowsBack(ctx context.Context, t *turn, l *lease, rows int) {
	if rows <= 0 {
		return
	}
	w.pass.giveBack(rows)
	if !t.limited() || w.session.lost() {
		return
	}
	if _, err := w.session.takeRows(ctx, l, -rows); err != nil {
		w.log.Warn("rows that a batch did not delete count as deleted for a while", "policy", t.policy.Name, "rows", rows, "error", stripped("give back", err))
	}
}

// waits ends a turn because a guard lets this policy delete no more for as long as the clock says: its window is closed.
func (w *worker) waits(t *turn, a *guard.Answer) turnEnd {
	t.memory.pauses.wait(a.Until)
	t.limit(a.Detail)
	w.metrics.limited(t.policy, string(a.Reason))
	return turnLimited
}
