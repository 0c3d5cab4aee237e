package survey

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/functions"
	"lapse/planner/index"
	"lapse/planner/record"
)

// Draft surveys a policy version that is not applied. around is what was found when it was compared with the database; nil if it was not.
func Draft(ctx context.Context, d *database.Draft, ask Ask, v *record.Version, around *index.Around) (*Survey, error) {
	s := &surveyor{ask: ask, definition: &v.Definition, limits: v.Spec.Limits, window: v.Spec.Window, owner: d.Roles.Owner, table: v.Table, around: around, trusts: v.Spec.Triggers.Trusted, survey: Survey{
		Policy: v.Definition.Name, Table: v.Definition.Table, Slices: v.Spec.SliceCount(),
	}}
	err := draft(ctx, d, s)
	return &s.survey, err
}

func draft(ctx context.Context, d *database.Draft, s *surveyor) error {
	// Everything else is asked in another session first: the count's session does only the count.
	err := d.Read(ctx, func(q database.Querier) error {
		pinned := func(work func(q database.Querier) error) error { return work(q) }
		return s.run(ctx, q, pinned, func(at time.Time, to extent) (*found, error) {
			owner, err := database.OwnerOf(ctx, q, s.table, s.definition.Table)
			if err != nil {
				return nil, err
			}
			var f *found
			err = d.CountFor(ctx, owner, func(tx *database.DraftTx) (err error) {
				f, err = countDraft(ctx, q, tx, owner, s, at, to)
				return err
			})
			return f, err
		})
	})
	if refused := (*database.RefusedError)(nil); errors.As(err, &refused) {
		s.survey.Trouble, err = refused.Text, nil
	}
	if err != nil {
		return fmt.Errorf("survey policy %s: %w", s.definition.Name, err)
	}
	return nil
}

// countDraft makes the survey function, gives it to the role whose rights it must not exceed, and calls it once.
func countDraft(ctx context.Context, q database.Querier, tx *database.DraftTx, owner *database.Owner, s *surveyor, at time.Time, to extent) (*found, error) {
	text, err := s.definition.DraftSurvey(s.table, s.trusts)
	if err != nil {
		return nil, err
	}
	// The function already calls the draft's copies: an apparent call in a policy's own texts is none.
	if _, err := tx.Exec(ctx, text, pgx.QueryExecModeSimpleProtocol); err != nil {
		return nil, fmt.Errorf("make the function that counts: %w", err)
	}
	reads := []string{s.definition.Table}
	for _, j := range s.definition.Expire.Joins() {
		reads = append(reads, j.Relation)
	}
	if err := tx.Give(ctx, database.Giving{Function: functions.DraftSurvey + functions.SurveyArguments, Name: s.definition.Table, Owner: owner, Reads: reads, Ask: q}); err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, "set transaction read only"); err != nil {
		return nil, fmt.Errorf("begin to read: %w", err)
	}
	var f *found
	err = database.GivingWay(ctx, tx.Conn(), nil, func() (err error) {
		f, err = callSurvey(ctx, tx, functions.DraftSurvey, at, to)
		return err
	})
	return f, err
}
