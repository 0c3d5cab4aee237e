// Package database reads, for all of planner's rooms, what a database knows about a user's table, whatever the policy: which table a name means and
// which leaves it has (table.go), where foreign keys delete too (relation.go), and which code would run inside a deletion (intruder.go). It reads
// no rows.
//
// Pinned rolls back what it did. GivingWay ends a count when another session waits to change the table (watch.go). A Draft (draft.go, give.go) works
// in a database without Lapse's catalog, through temporary copies of its functions.
package database
