package functions

import (
	"lapse/planner/expiry"
	"lapse/schemas"
)

// A soft action sets a column of a row once, and the row stays. The policy's condition requires that the column is not set. So plans, looks
// and batches only concern rows that are not set yet, and a row that somebody else has set stays as it is. Apart from that everything is as
// for deletions, with an UPDATE in the batch. A second policy on the table may delete rows that are set, by that column.

const boolean expiry.ColumnType = "boolean"

// Unset is the condition that the action's column is not set, over t, in PostgreSQL's spelling.
func (d *Definition) Unset() string {
	return "(t." + schemas.Identifier(d.Soft.Name) + " " + d.IsUnset() + ")"
}

// IsUnset is what holds for the action's column in a row that is not set.
func (d *Definition) IsUnset() string {
	if d.Soft.Type == boolean {
		return "IS NOT TRUE"
	}
	return "IS NULL"
}

// UnsetAnd adds the condition that the action's column is not set to a condition of the policy file, which may be "".
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

// verb is the beginning of the batch's statement.
func (d *Definition) verb() string {
	if d.Soft != nil {
		return "update"
	}
	return "delete from"
}

// joining is the keyword before the relations that the statement reads in addition to the table.
func (d *Definition) joining() string {
	if d.Soft != nil {
		return "\n  from "
	}
	return "\n       using "
}

// set is the SET of the batch's statement, "" for a DELETE. Instants are the transaction's, which its claim contains too.
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
