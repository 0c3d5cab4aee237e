// Package holds places, moves, releases and reads legal holds. What a hold keeps planner and the catalog decide; here is when it is in force: Place and
// Move return once no batch that did not see it can commit any more. Finish completes what a crash left in between.
package holds
