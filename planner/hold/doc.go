// Package hold reads legal holds: a hold's table and the rows that it names (hold.go), which existing rows it matches (match.go), and the table that
// it moves to after a table was replaced (move.go). SQL in the catalog keeps held rows from a batch: see docs/holds.md. The values that a hold
// names are only in its condition and digest, never in an error.
package hold
