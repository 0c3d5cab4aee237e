package change

import (
	"fmt"

	"lapse/planner/policyfile"
)

// PublishesChangesOf is the table whose inserts and updates are published once the change is in force; 0 for none.
func (c *Change) PublishesChangesOf() uint32 {
	v := c.Next
	if v == nil && c.Kind != Removed {
		v = c.former
	}
	if v == nil || !v.PublishesChanges() {
		return 0
	}
	return v.Table
}

// movesCost is what moves: detect costs.
func movesCost(table string) string {
	return fmt.Sprintf("moves: detect: each row that is inserted into %s or updated passes through the replication slot whole, and one of more than about 500 MB stops the audit for good: see docs/limits.md", table)
}

// movesBegin warns of the cost where a change begins to detect moves.
func movesBegin(c *Change) []string {
	if c.Next.Spec.Moves != policyfile.MovesDetect || c.former != nil && c.former.PublishesChanges() && c.former.Table == c.Next.Table {
		return nil
	}
	return []string{movesCost(c.Table)}
}
