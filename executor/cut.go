package executor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"lapse/planner"
	"lapse/schemas"
)

// cut asks into which ranges a run's leaves are best cut before the run is opened, where there is more than one worker and much
// may be due. A leaf need not be cut: whatever the policy's own survey fails of, its run is opened without. The
// survey function was compared before: see judge.
//
//	crash behind it    nothing was opened, and nothing is left
func (w *worker) cut(ctx context.Context, t *turn) ([]planner.Cut, turnEnd, error) {
	p := t.policy
	if w.config.Limits.Workers < 2 || !p.MuchMayBeDue(w.now()) {
		return nil, turnGoesOn, nil
	}
	cuts, due, err := planner.Cuts(ctx, w.session.batches, p, w.now())
	if err != nil && (w.session.lost() || schemas.StateOf(err) == "") {
		end, err := w.trouble(t, err, 1)
		return nil, end, err
	}
	if err != nil {
		w.log.Info("the backlog is not cut into ranges", "policy", p.Name, "error", stripped("ask for cuts", err))
		return nil, turnGoesOn, nil
	}
	if t.expected == 0 {
		t.expected = due
	}
	return cuts, turnGoesOn, nil
}

// compareSurvey holds a policy's survey function against what this program makes. One that is gone is no error: its call is.
func (w *worker) compareSurvey(ctx context.Context, p *planner.InForce) error {
	own, err := planner.Functions(&p.Definition, w.config.Roles)
	if err != nil {
		return fmt.Errorf("build the functions of policy %s: %w", p.Name, err)
	}
	survey := own[slices.IndexFunc(own, func(f schemas.Function) bool { return f.Name == planner.SurveyFunction(p.ID, p.Version) })]
	rows, err := w.session.control.Query(ctx, schemas.FunctionTexts, []string{strings.TrimPrefix(survey.Name, "lapse.")})
	if err != nil {
		return fmt.Errorf("read the survey function: %w", err)
	}
	all, err := schemas.ReadFunctions(rows)
	if err != nil {
		return fmt.Errorf("read the survey function: %w", err)
	}
	for i := range all {
		if what := survey.Differs(&all[i]); what != "" {
			return &tamperedError{survey.Name, what}
		}
	}
	return nil
}
