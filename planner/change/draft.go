package change

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/index"
	"lapse/planner/policyfile"
	"lapse/planner/resolve"
	"lapse/planner/survey"
)

// DraftDifference is Difference for a database that may have no catalog; it compares with nothing in force. more examines the changes further in
// the same session; err is the error of Difference.
func DraftDifference(ctx context.Context, d *database.Draft, file *policyfile.File, fit resolve.Fit, far Far, more func(tx pgx.Tx, changes []Change, err error) error) error {
	return d.Begin(ctx, func(tx *database.DraftTx) error {
		changes, err := newComparison(file, false, fit, far).compare(ctx, tx)
		return more(tx, changes, err)
	})
}

// SurveyDraft surveys a policy that is not applied.
func SurveyDraft(ctx context.Context, d *database.Draft, ask survey.Ask, r *resolve.Resolved) (*survey.Survey, error) {
	survey, err := survey.Draft(ctx, d, ask, r.Version(), r.Around)
	if r.Spec.Moves == policyfile.MovesDetect {
		survey.Warnings = append(survey.Warnings, movesCost(survey.Table))
	}
	survey.Warnings = append(survey.Warnings, resolve.Unitless(&r.Policy)...)
	return survey, err
}

// Survey counts what the file's version would delete and, at the same cutoff, what the version in force would: nil if there is none, or if it is
// the same. It holds no lock on the table when it returns.
func Survey(ctx context.Context, d *database.Draft, ask survey.Ask, c *Change) (next, former *survey.Survey, err error) {
	var around *index.Around
	if c.Resolved != nil {
		around = c.Resolved.Around
	}
	if next, err = survey.Draft(ctx, d, ask, c.Next, around); err != nil || c.before == nil || c.isVersion == c.before.Version {
		return next, nil, err
	}
	ask.At = next.At
	former, err = survey.Draft(ctx, d, ask, c.former, nil)
	return next, former, err
}

// NextRun is when a change's policy first runs after it is armed.
func (c *Change) NextRun(now time.Time) (time.Time, error) {
	return c.Next.Spec.Schedule(c.Policy).Next(time.Time{}, now)
}
