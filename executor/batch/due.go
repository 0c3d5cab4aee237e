package batch

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/planner/functions"
	"lapse/planner/record"
	"lapse/planner/run"
	"lapse/schemas"
)

// FunctionsToFind builds the functions that a look of a policy version runs.
func FunctionsToFind(p *record.InForce, c *Catalog) (*Program, error) {
	roles := c.roles
	own, err := functions.Of(&p.Definition, roles)
	if err != nil {
		return nil, fmt.Errorf("build the functions of policy %s: %w", p.Name, err)
	}
	shared, err := c.looks()
	if err != nil {
		return nil, err
	}
	look := own[slices.IndexFunc(own, func(f schemas.Function) bool { return f.Name == functions.DueFunction(p.ID, p.Version) })]
	return newProgram([]schemas.Function{look}, shared, func(name, grantee string) bool {
		return grantee == roles.Owner || grantee == roles.Executor || grantee == look.Owner ||
			name != look.Name && strings.HasPrefix(grantee, roles.DeleterPrefix)
	}), nil
}

// FindDue compares a look's functions with what they must be, and then runs them in a clean session and a read-only transaction. One that
// changes in between can give a wrong answer once: a batch compares again.
func (s *Session) FindDue(ctx context.Context, p *record.InForce, f *Program, quiet []int64) (look run.Look, err error) {
	known, err := s.ask(ctx, f)
	if err == nil && known.functions == nil {
		err = s.compareFind(ctx, f)
	}
	if err != nil {
		return look, err
	}
	batch := &pgx.Batch{}
	before := beginFind(batch)
	batch.Queue(run.LookStatement(p.ID, p.Version), nil, quiet)
	batch.Queue("rollback")
	answers := s.Batches.SendBatch(ctx, batch)
	for range before {
		if _, failed := answers.Exec(); err == nil {
			err = failed
		}
	}
	if err == nil {
		var rows pgx.Rows
		if rows, err = answers.Query(); err == nil {
			look, err = run.ReadLook(rows)
		}
	}
	if closed := answers.Close(); err == nil {
		err = closed
	}
	if err == nil {
		return look, nil
	}
	s.rollback(ctx)
	if schemas.StateOf(err) == schemas.SQLStateUndefinedFunction { // dropped since it was asked about
		return look, cmp.Or(s.compareFind(ctx, f), ErrFunctionsChanged)
	}
	return look, fmt.Errorf("look for due rows: %w", err)
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
