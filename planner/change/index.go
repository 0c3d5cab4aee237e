package change

import (
	"lapse/planner/resolve"
	"lapse/schemas"
)

// CreatesIndex reports whether the policy says index: create after the change.
func (c *Change) CreatesIndex() bool {
	v := c.Next
	if v == nil {
		v = c.former
	}
	return c.ToState != schemas.Dropped && v != nil && v.Spec.Index == resolve.CreateIndex
}

// IndexTable is the table of the policy's index after the change, 0 if it has none.
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
