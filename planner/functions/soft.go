package functions

import (
	"lapse/planner/expiry"
	"lapse/schemas"
)

// A soft action sets a column of a row once, and the row stays. The policy's condition has in it that the column is not set: so plans,
// looks and batches are about rows that are not set yet, and a row that somebody has set is left as it is. Everything else is as where
// rows are deleted; the batch's statement is an UPDATE. A second policy on the table may delete what is set, by that column.

const boolean expiry.ColumnType = "boolean"

// Unset is the condition that the action's column is not set, over t, as PostgreSQL writes it.
func (d *Definition) Unset() string {
	return "(t." + schemas.Identifier(d.Soft.Name) + " " + d.IsUnset() + ")"
}

// IsUnset is what is true of the action's column in a row that is not set.
func (d *Definition) IsUnset() string {
	if d.Soft.Type == boolean {
		return "IS NOT TRUE"
	}
	return "IS NULL"
}

// UnsetAnd is a condition of the policy file, "" for none, with the one that the action's column is not set.
func (d *Definition) UnsetAnd(where string) string {
	if d.Soft == nil {
		return where
	}
	is := schemas.Identifier(d.Soft.Name) + " " + d.IsUnset()
	if where == "" {
		return is
	}
	return "(" + where + ") and " + is
}

// verb is what the batch's statement begins with.
func (d *Definition) verb() string {
	if d.Soft != nil {
		return "update"
	}
	return "delete from"
}

// joining is the keyword before the relations that the statement reads besides the table.
func (d *Definition) joining() string {
	if d.Soft != nil {
		return "\n  from "
	}
	return "\n       using "
}

// set is the SET of the batch's statement, "" for one that deletes. Instants are the transaction's, which its claim has too.
func (d *Definition) set() string {
	if d.Soft == nil {
		return ""
	}
	value := "true"
	switch d.Soft.Type {
	case expiry.Timestamptz:
		value = "now()"
	case expiry.Timestamp:
		value = "now() at time zone 'UTC'"
	case expiry.Date:
		value = "(now() at time zone 'UTC')::date"
	}
	return " set " + schemas.Identifier(d.Soft.Name) + " = " + value
}
