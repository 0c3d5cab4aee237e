package record

import (
	"context"
	"fmt"
	"sync"

	"lapse/planner/database"
)

// Versions remembers the policy versions of the list that was last loaded with it, by all that the catalog says of them: what was changed there by hand,
// or by a restore, is read like any other. What it returns is shared between lists, and nobody may write to it. Safe for concurrent use.
type Versions struct {
	mu    sync.Mutex
	known map[string]*Version
}

// LoadInForce is the function of that name.
func (v *Versions) LoadInForce(ctx context.Context, q database.Querier) ([]InForce, error) {
	rows, err := database.Collect[inForceRow](ctx, q, inForceSQL)
	if err != nil {
		return nil, fmt.Errorf("load the policies in force: %w", err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	all, seen := make([]InForce, 0, len(rows)), make(map[string]*Version, len(rows))
	for i := range rows {
		is, err := v.read(rows[i].Is, seen)
		var held *Version
		if err == nil && rows[i].Held != nil {
			held, err = v.read(*rows[i].Held, seen)
		}
		if err != nil {
			return nil, fmt.Errorf("load the policies in force: %w", err)
		}
		all = append(all, rows[i].inForce(is, held))
	}
	v.known = seen
	return all, nil
}

// read reads a version, unless the last list has it.
func (v *Versions) read(text string, seen map[string]*Version) (*Version, error) {
	is := v.known[text]
	if is == nil {
		is = &Version{}
		if err := is.Scan(text); err != nil {
			return nil, err
		}
	}
	seen[text] = is
	return is, nil
}
