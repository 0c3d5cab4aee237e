package planner

import (
	"context"
	"fmt"

	"lapse/planner/functions"
	"lapse/schemas"
)

// OutdatedError says that another version of Lapse wrote a policy's functions. Nothing of it runs: not even its look.
type OutdatedError struct{}

// Error says what to do, after the policy's name.
func (*OutdatedError) Error() string {
	return "its functions are those of another lapse, and are not run until you run `lapse apply` with its policy file, which writes them anew"
}

// Outdated returns an *OutdatedError where this program would write other functions for the policy, as `lapse apply` of the same
// file does. It writes the text to compare it: frequent callers keep the answer, which is the same as long as a version is in force.
func (p *InForce) Outdated() error {
	if p.spec.Functions == p.Definition.Digest() {
		return nil
	}
	return &OutdatedError{}
}

// foundFunctions are the functions of schema lapse as the database has them.
type foundFunctions struct {
	named    map[string][]schemas.FoundFunction
	deleters map[uint32]string // by the owner of the tables
}

// findFunctions reads them out of the system catalog.
func findFunctions(ctx context.Context, q Querier) (*foundFunctions, error) {
	rows, err := q.Query(ctx, schemas.FunctionTexts, []string(nil))
	if err != nil {
		return nil, fmt.Errorf("read the functions of policies: %w", err)
	}
	all, err := schemas.ReadFunctions(rows)
	if err != nil {
		return nil, fmt.Errorf("read the functions of policies: %w", err)
	}
	f := &foundFunctions{named: map[string][]schemas.FoundFunction{}, deleters: map[uint32]string{}}
	for _, is := range all {
		f.named[is.Name] = append(f.named[is.Name], is)
	}
	type deleter struct {
		Owner uint32
		Role  string
	}
	deleters, err := collect[deleter](ctx, q, `select d.owner, d.role::text from lapse.deleter d`)
	if err != nil {
		return nil, fmt.Errorf("read the deleters: %w", err)
	}
	for _, d := range deleters {
		f.deleters[d.Owner] = d.Role
	}
	return f, nil
}

// are reports whether the functions of a version on record are there, and are as this program writes them. They go with their
// owner when that role is dropped, and their owner can change them.
func (f *foundFunctions) are(d *functions.Definition) bool {
	expected, err := functions.Of(d, schemas.Roles{})
	if err != nil {
		return true // they cannot be written: see checkArithmetic
	}
	for i := range expected {
		expected[i].Owner = f.deleters[d.TableOwner]
		found := f.named[expected[i].Name]
		if len(found) != 1 || expected[i].Differs(&found[0]) != "" {
			return false
		}
	}
	return true
}
