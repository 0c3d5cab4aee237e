package executor

import (
	"context"
	"errors"
	"fmt"

	"lapse/executor/guard"
	"lapse/planner"
	"lapse/schemas"
)

// judge holds what is due under a policy with max_fraction against its table before a run is begun. The turn goes on where that is
// little enough. What cannot be judged stops the policy: it asked not to be run then.
//
//	crash before the breaker is open    no run was begun, and the next turn judges again
func (w *worker) judge(ctx context.Context, t *turn) (turnEnd, error) {
	p := t.policy
	if p.Limits.MaxFraction == 0 || p.Unfinished != nil {
		return turnGoesOn, nil
	}
	j, err := planner.Judge(ctx, w.session.batches, w.session.control, p)
	switch schemas.StateOf(err) {
	case schemas.SQLStateQueryCanceled:
		err = errors.New("max_fraction cannot be judged: counting what is due takes too long; take the key out, or make the index that `lapse plan` names")
	case schemas.SQLStateLockNotAvailable:
		t.memory.retry(w.now())
		w.log.Warn("max_fraction cannot be judged while somebody holds a lock", "policy", p.Name)
		return turnBlocked, nil
	default:
		if err != nil {
			return w.trouble(t, err, 1)
		}
	}
	if err == nil && j.Rows < 0 {
		err = fmt.Errorf("max_fraction cannot be judged, since nobody has counted the rows of %s: analyze %s", p.TableName, p.TableName)
	}
	if err != nil {
		w.stop(p, err)
		return turnStopped, nil
	}
	t.due, t.expected = &j.Due, j.Due
	if !j.Trips(p) {
		return turnGoesOn, nil
	}
	if err := planner.TripBreaker(ctx, w.session.control, p, j); err != nil {
		return w.trouble(t, err, 1)
	}
	w.metrics.limited(p, string(guard.TooMuchDue))
	a := guard.Tripped(p, &planner.Trip{At: w.now(), Due: j.Due, Rows: j.Rows})
	w.log.Warn("too much is due at once, and nothing is deleted", "policy", p.Name, "due", j.Due, "table_rows", j.Rows,
		"max_fraction", p.Limits.MaxFraction, "fix", a.Fix)
	return w.refused(t, &a), nil
}
