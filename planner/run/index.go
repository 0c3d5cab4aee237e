package run

import (
	"context"
	"fmt"

	"lapse/planner/database"
	"lapse/planner/index"
	"lapse/planner/record"
)

// MissingIndex returns the consequence of having no index that finds the policy's due rows, and the statements that make one; nil if each leaf has
// one, or if none would serve. It reads only the catalog.
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
