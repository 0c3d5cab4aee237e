package change

import (
	"context"
	"fmt"

	"lapse/planner/database"
	"lapse/planner/functions"
	"lapse/schemas"
)

// foundFunctions are the functions of schema lapse as the database has them.
type foundFunctions struct {
	named    map[string][]schemas.FoundFunction
	deleters map[uint32]string // by the owner of the tables
	judged   map[versionKey]bool
}

// findFunctions reads them out of the system catalog.
func findFunctions(ctx context.Context, q database.Querier) (*foundFunctions, error) {
	rows, err := q.Query(ctx, schemas.FunctionTexts, []string(nil))
	if err != nil {
		return nil, fmt.Errorf("read the functions of policies: %w", err)
	}
	all, err := schemas.ReadFunctions(rows)
	if err != nil {
		return nil, fmt.Errorf("read the functions of policies: %w", err)
	}
	f := &foundFunctions{named: map[string][]schemas.FoundFunction{}, deleters: map[uint32]string{}, judged: map[versionKey]bool{}}
	for _, is := range all {
		f.named[is.Name] = append(f.named[is.Name], is)
	}
	type deleter struct {
		Owner uint32
		Role  string
	}
	deleters, err := database.Collect[deleter](ctx, q, `select d.owner, d.role::text from lapse.deleter d`)
	if err != nil {
		return nil, fmt.Errorf("read the deleters: %w", err)
	}
	for _, d := range deleters {
		f.deleters[d.Owner] = d.Role
	}
	return f, nil
}

// are reports whether the functions of a version on record exist and are as this program writes them. They are dropped with their owner, and
// their owner can change them.
func (f *foundFunctions) are(d *functions.Definition) bool {
	key := versionKey{d.ID, d.Version}
	if _, judged := f.judged[key]; !judged {
		f.judged[key] = f.compare(d)
	}
	return f.judged[key]
}

func (f *foundFunctions) compare(d *functions.Definition) bool {
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
