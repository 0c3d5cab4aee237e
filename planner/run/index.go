package run

import (
	"context"
	"fmt"

	"lapse/planner/database"
	"lapse/planner/index"
	"lapse/planner/record"
)

// MissingIndex returns what is so without an index that finds the policy's due rows, and the statements that make one; nil where each leaf
// has one, or none would serve. Only the catalog is read.
func MissingIndex(ctx context.Context, q database.Querier, p *record.InForce) (*index.Advice, error) {
	leaves, err := database.Collect[database.Leaf](ctx, q, database.LeavesSQL, p.TableOID)
	if err != nil {
		return nil, fmt.Errorf("check the partitions of %s: %w", p.TableName, err)
	}
	relations := make([]database.Relation, len(leaves))
	for i, l := range leaves {
		relations[i] = database.Relation{OID: l.OID, Name: l.Name}
	}
	found, err := index.Find(ctx, q, &p.Definition, relations, index.AdvisedPrefix)
	if err != nil {
		return nil, fmt.Errorf("look for the index of policy %s: %w", p.Name, err)
	}
	return found.None, nil
}
