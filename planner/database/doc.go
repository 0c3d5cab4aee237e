// Package database is what planner's rooms ask a database about a user's table, whatever the policy: which table a name means and which
// leaves it has (table.go), what foreign keys take along (relation.go), and which code would run inside a deletion (intruder.go). Nothing of
// a row is read.
//
// Pinned undoes what it did, in a session whose settings do not matter. GivingWay ends a count when somebody waits to change the table
// (watch.go). A Draft (draft.go, give.go) asks a database without Lapse's catalog, through copies of its functions that are undone.
package database
