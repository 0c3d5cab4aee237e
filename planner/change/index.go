package change

import (
	"lapse/planner/resolve"
	"lapse/schemas"
)

// CreatesIndex reports whether the policy, after the change, is one that says index: create.
func (c *Change) CreatesIndex() bool {
	v := c.Next
	if v == nil {
		v = c.former
	}
	return c.ToState != schemas.Dropped && v != nil && v.Spec.Index == resolve.CreateIndex
}

// IndexTable is the table that the policy's index is of after the change, 0 where it has none any more.
func (c *Change) IndexTable() uint32 {
	v := c.Next
	if v == nil {
		v = c.former
	}
	if c.ToState == schemas.Dropped || v == nil {
		return 0
	}
	if of := v.Definition.Expire.Index().Table.OID; of != 0 {
		return of
	}
	return v.Table
}
