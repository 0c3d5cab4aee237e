package batch

import (
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
func FunctionsToFind(p *record.InForce, roles schemas.Roles) (*Program, error) {
	own, err := functions.Of(&p.Definition, roles)
	if err != nil {
		return nil, fmt.Errorf("build the functions of policy %s: %w", p.Name, err)
	}
	shared, err := schemas.LookFunctions(roles)
	if err != nil {
		return nil, err
	}
	look := own[slices.IndexFunc(own, func(f schemas.Function) bool { return f.Name == functions.DueFunction(p.ID, p.Version) })]
	return newProgram([]schemas.Function{look}, shared, func(name, grantee string) bool {
		return grantee == roles.Owner || grantee == roles.Executor || grantee == look.Owner ||
			name != look.Name && strings.HasPrefix(grantee, roles.DeleterPrefix)
	}), nil
}

// FindDue runs a policy's look in one round trip, in a clean session and a read-only transaction. The same statement compares the
// functions with what they must be, and runs none of them if they differ.
func (s *Session) FindDue(ctx context.Context, p *record.InForce, f *Program, quiet []int64) (run.Look, error) {
	for range 2 {
		look, same, err := s.tryFind(ctx, p, f, quiet)
		if err != nil || same {
			return look, err
		}
		if err := s.compareFind(ctx, f); err != nil {
			return look, err
		}
	}
	return run.Look{}, ErrFunctionsChanged
}

// beginFind queues the statements that clean the session and begin a look's transaction.
func beginFind(batch *pgx.Batch) (statements int) {
	for _, statement := range []string{"reset all", "deallocate all", "discard temp", "begin isolation level read committed read only"} {
		batch.Queue(statement)
	}
	return batch.Len()
}

func (s *Session) tryFind(ctx context.Context, p *record.InForce, f *Program, quiet []int64) (look run.Look, same bool, err error) {
	batch := &pgx.Batch{}
	before := beginFind(batch)
	equal := f.equal()
	versions := "select concat(array_agg(v.version)) from " + strings.NewReplacer("$1", "$4", "$2", "$5").Replace(functionVersions)
	batch.Queue(run.LookStatement(p.ID, p.Version, versions, "$3::bigint[]"), nil, equal.text, quiet, equal.at, f.names)
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
			look, same, err = run.ReadLook(rows)
		}
	}
	if closed := answers.Close(); err == nil {
		err = closed
	}
	if err == nil {
		return look, same, nil
	}
	s.rollback(ctx)
	if schemas.StateOf(err) == schemas.SQLStateUndefinedFunction {
		return look, false, nil // compareFind says what is missing
	}
	return look, false, fmt.Errorf("look for due rows: %w", err)
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
