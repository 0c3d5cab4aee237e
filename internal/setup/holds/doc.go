// Package holds places, moves, releases and reads legal holds. Planner and the catalog decide what a hold keeps; this package decides when
// it is in force: Place and Move return once no batch that did not see the hold can commit any more. Finish completes what a crash left in
// between. In the catalog, lapse.holds_on finds the holds on a leaf and lapse.follow_holds records where they have spread
// (schemas/migrations/0001_13_members.sql); lapse.held says for a row whether one is on it (0001_12_holds.sql).
package holds
