// Package holds places, moves, releases and reads legal holds. Planner and the catalog decide what a hold keeps; this package decides when
// it is in force: Place and Move return once no batch that did not see the hold can commit any more. Finish completes what a crash left in
// between.
package holds
