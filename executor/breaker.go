package executor

import (
	"context"
	"errors"
	"log/slog"

	"lapse/executor/guard"
	"lapse/planner/database"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/planner/survey"
	"lapse/schemas"
)

// throttleLock is the reason for not beginning a run: another session's lock blocks the count of due rows, or the count would block
// another session.
const throttleLock = "table_locked"

// tableRows counts the rows of the policy's table, for a max_rows_per_run that is a share of it. It returns nil if the limit is none, or
// if the count takes too long: the run then uses the catalog's estimate. A limit that only slows deletion must not stop it.
func (w *worker) tableRows(ctx context.Context, p *record.InForce) (*int64, error) {
	if p.Limits.MaxPercent == 0 || p.Unfinished != nil {
		return nil, nil
	}
	if err := w.compareSurvey(ctx, p); err != nil {
		return nil, err
	}
	rows, err := survey.TableRows(ctx, w.session.Batches, w.session.Control, p, w.now())
	if schemas.StateOf(err) != "" && !w.session.Lost() {
		w.log.Info("the table's rows could not be counted, and max_rows_per_run goes by the catalog's estimate", "policy", p.Name,
			"error", stripped("count the table's rows", err))
		return nil, nil
	}
	return &rows, err
}

// judge compares what is due under a policy with what is expected, before a run begins: see survey.Judge. It skips a run whose number of
// rows a person has allowed, because that run deletes no more than that. The turn goes on if nothing is strange.
//
// A changed survey function stops the policy, as a changed deletion function does. A policy with max_fraction below 1 that cannot be
// judged is stopped too: it must not run unchecked. Any other policy runs without the check, and meets the error itself: a lock on one
// partition, or a missing right on it, must not keep the run from the other partitions.
//
//	crash before the breaker is open    no run was begun, and the next turn judges again
func (w *worker) judge(ctx context.Context, t *turn) (turnEnd, error) {
	p := t.policy
	if p.Unfinished != nil {
		return turnGoesOn, nil
	}
	if err := w.compareSurvey(ctx, p); err != nil || p.Accepted > 0 {
		return turnGoesOn, err
	}
	j, err := survey.Judge(ctx, w.session.Batches, w.session.Control, p, w.now())
	switch state := schemas.StateOf(err); {
	case (p.Limits.MaxFraction == 0 || p.Limits.MaxFraction == 1) && state != "" && !w.session.Lost():
		level := slog.LevelWarn
		if state == schemas.SQLStateLockNotAvailable {
			level = t.memory.locks.level()
		}
		w.log.Log(ctx, level, "what is due could not be compared with what is expected", "policy", p.Name, "error", stripped("count what is due", err))
		return turnGoesOn, nil
	case errors.Is(err, database.ErrAwaited), state == schemas.SQLStateLockNotAvailable:
		pause := t.memory.pauses.retry(w.now())
		t.memory.pauses.change(func(d *delay) { d.throttled = throttleLock })
		w.log.Log(ctx, t.memory.locks.level(), "counting what is due, for max_fraction, is postponed: another session has locked the table or a partition, or waits to change it",
			"policy", p.Name, "pause_seconds", pause.Seconds())
		return turnBlocked, nil
	case state == schemas.SQLStateQueryCanceled:
		err = errors.New("max_fraction cannot be checked: counting what is due takes too long; remove the key, make the index that `lapse plan` names, or analyze " + p.TableName)
	case err != nil:
		return turnGoesOn, err
	}
	if err != nil {
		w.stop(p, err)
		return turnStopped, nil
	}
	t.memory.pauses.change(func(d *delay) { d.throttled = "" })
	t.judged = j
	if j.DueIs == survey.Exact {
		t.due, t.expected = &j.Due, j.Due
	}
	if !j.Trips {
		return turnGoesOn, nil
	}
	if err := run.TripBreaker(ctx, w.session.Control, p, &j.Trip); err != nil {
		return turnGoesOn, err
	}
	w.countStay(ctx, p)
	a := guard.Tripped(p, &j.Trip)
	w.metrics.limited(p, string(a.Reason))
	w.log.Warn("more is due than expected, and nothing is deleted", "policy", p.Name, "reason", a.Reason, "due", j.Due,
		"table_rows", j.Rows, "compared_with", j.Compared, "max_fraction", p.Limits.MaxFraction, "fix", a.Fix)
	return w.refused(t, &a), nil
}
