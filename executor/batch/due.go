package batch

import (
	"cmp"
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"lapse/planner/functions"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/schemas"
)

// FunctionsToFind builds the functions that a look of a policy version runs.
func FunctionsToFind(p *record.InForce, c *Catalog) (*Program, error) {
	return programWith(p, c, func(s *shared) []schemas.Function { return s.looks }, functions.DueFunction(p.ID, p.Version))
}

// Search is a look at the table of one policy, with the functions that it runs and the marks of leaves that it skips.
type Search struct {
	Policy    *record.InForce
	Functions *Program
	Quiet     []int64
}

// FindDue compares a look's functions with what they must be, and then runs them in a clean session and a read-only transaction. One that
// changes in between can give a wrong answer once: a batch compares again.
func (s *Session) FindDue(ctx context.Context, p *record.InForce, f *Program, quiet []int64) (run.Look, error) {
	known, err := s.ask(ctx, f)
	if err == nil && known.functions == nil {
		err = s.compareFind(ctx, f)
	}
	if err != nil {
		return run.Look{}, err
	}
	looks, err := s.find(ctx, []Search{{p, f, quiet}})
	switch {
	case err == nil:
		return looks[0], nil
	case schemas.StateOf(err) == schemas.SQLStateUndefinedFunction: // dropped since it was asked about
		return run.Look{}, cmp.Or(s.compareFind(ctx, f), ErrFunctionsChanged)
	}
	return run.Look{}, err
}

// FindAllDue makes several looks in one round trip, if their functions are those with which FindDue last found them equal; otherwise it returns
// ErrFunctionsChanged. Each look takes back what code in its condition has set, so that the next one has a clean session too. An error of one
// look is that of all.
func (s *Session) FindAllDue(ctx context.Context, searches []Search) ([]run.Look, error) {
	programs := make([]*Program, len(searches))
	for i := range searches {
		programs[i] = searches[i].Functions
	}
	equal, regprocs := together(programs)
	if equal == nil {
		return nil, ErrFunctionsChanged
	}
	var found string
	err := s.Control.QueryRow(ctx, `select `+functionVersions, equal.at, regprocs).Scan(&found)
	if unnamed(err) || err == nil && found != equal.text {
		return nil, ErrFunctionsChanged
	}
	if err != nil {
		return nil, fmt.Errorf("ask about the functions: %w", err)
	}
	return s.find(ctx, searches)
}

// find makes looks in a clean session and a read-only transaction.
func (s *Session) find(ctx context.Context, searches []Search) (looks []run.Look, err error) {
	batch := &pgx.Batch{}
	before := beginFind(batch)
	policies, arguments := make([]*record.InForce, len(searches)), []any{nil}
	for i := range searches {
		policies[i], arguments = searches[i].Policy, append(arguments, searches[i].Quiet)
	}
	batch.Queue(run.LookStatement(policies...), arguments...)
	batch.Queue("rollback")
	answers := s.Batches.SendBatch(ctx, batch)
	for range before {
		if _, failed := answers.Exec(); err == nil {
			err = failed
		}
	}
	rows, failed := answers.Query()
	if failed == nil {
		looks, failed = run.ReadLooks(rows, len(searches))
	}
	if closed := answers.Close(); failed == nil {
		failed = closed
	}
	if err == nil {
		err = failed
	}
	if err != nil {
		s.rollback(ctx)
		return nil, fmt.Errorf("look for due rows: %w", err)
	}
	return looks, nil
}

// beginFind queues the statements that clean the session and begin a look's transaction.
func beginFind(batch *pgx.Batch) (statements int) {
	for _, statement := range []string{"reset all", "deallocate all", "discard temp", "begin isolation level read committed read only"} {
		batch.Queue(statement)
	}
	return batch.Len()
}

// compareFind compares the functions of a look with what they must be.
func (s *Session) compareFind(ctx context.Context, f *Program) error {
	defer s.rollback(ctx)
	batch := &pgx.Batch{}
	beginFind(batch)
	if err := s.Batches.SendBatch(ctx, batch).Close(); err != nil {
		return fmt.Errorf("read the functions of a look: %w", err)
	}
	_, err := f.compare(ctx, s.Batches, nil)
	return err
}
