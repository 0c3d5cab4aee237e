package executor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"lapse/executor/batch"
	"lapse/planner/functions"
	"lapse/planner/record"
	"lapse/planner/survey"
	"lapse/schemas"
)

// ranges plans a run over leaves with many due rows, before it is opened: the ranges into which each leaf is cut for several workers,
// and the leaves that batches read, and that are cut, in the order of their files. A run also works without this plan, so an error of the policy's own
// survey only means that there is none. judge has compared the survey function already.
//
//	crash after it     nothing was opened, and nothing is left
func (w *worker) ranges(ctx context.Context, t *turn) (b survey.Backlog, end turnEnd, err error) {
	p := t.policy
	if !survey.MuchMayBeDue(p, w.now()) {
		return b, turnGoesOn, nil
	}
	b, err = w.readBacklog(ctx, w.session.Batches, p, w.now(), &t.judged)
	if err != nil && (w.session.Lost() || schemas.StateOf(err) == "") {
		return b, turnGoesOn, err
	}
	if err != nil {
		w.log.Info("how the backlog lies is not known", "policy", p.Name, "error", stripped("check the backlog", err))
		return survey.Backlog{}, turnGoesOn, nil
	}
	if t.expected == 0 {
		t.expected = b.Due
	}
	return b, turnGoesOn, nil
}

// compareSurvey compares a policy's survey function with what this program makes. A missing function is no error here: calling it is.
func (w *worker) compareSurvey(ctx context.Context, p *record.InForce) error {
	own, err := functions.Of(&p.Definition, w.config.Roles)
	if err != nil {
		return fmt.Errorf("build the functions of policy %s: %w", p.Name, err)
	}
	survey := own[slices.IndexFunc(own, func(f schemas.Function) bool { return f.Name == functions.SurveyFunction(p.ID, p.Version) })]
	rows, err := w.session.Control.Query(ctx, schemas.FunctionTexts, []string{strings.TrimPrefix(survey.Name, "lapse.")})
	if err != nil {
		return fmt.Errorf("read the survey function: %w", err)
	}
	all, err := schemas.ReadFunctions(rows)
	if err != nil {
		return fmt.Errorf("read the survey function: %w", err)
	}
	for i := range all {
		if what := survey.Differs(&all[i]); what != "" {
			return &batch.TamperedError{Function: survey.Name, What: what}
		}
	}
	return nil
}
