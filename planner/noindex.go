package planner

import (
	"context"
	"fmt"
)

// MissingIndex returns what is so without an index that finds the policy's due rows, and the statements that make one; nil where each leaf
// has one, or none would serve. The catalog alone is read.
func (p *InForce) MissingIndex(ctx context.Context, q Querier) (*IndexAdvice, error) {
	leaves, err := collect[leaf](ctx, q, leavesSQL, p.TableOID)
	if err != nil {
		return nil, fmt.Errorf("look at the partitions of %s: %w", p.TableName, err)
	}
	relations := make([]Relation, len(leaves))
	for i, l := range leaves {
		relations[i] = Relation{OID: l.OID, Name: l.Name}
	}
	found, err := lookAtIndexes(ctx, q, &p.Definition, relations, advisedIndex)
	if err != nil {
		return nil, fmt.Errorf("look for the index of policy %s: %w", p.Name, err)
	}
	return found.None, nil
}
