// Package hold reads legal holds: a hold's table and the rows that it names (hold.go), how many rows that are there it matches (match.go),
// and the table that it is on after a table took another's place (move.go). What keeps held rows from a batch is SQL of the catalog: see
// docs/holds.md. Values that a hold names are in its condition and digest alone, never in an error.
package hold
