// Package planner decides what is due, how it is found, and in which shards the work is done. Package functions writes all SQL that selects or
// deletes rows; only the deletion functions among it delete.
//
// # What it promises
//
//   - Exactly the rows that the policy's kind calls due are deleted, and no value raises an error inside a scan: see planner/expiry,
//     which has a file per kind. Pick, delete, survey and plan use one condition from there: due, and where, and not held.
//   - A policy version never changes. Two equal definitions give the same text, byte for byte.
//   - A deletion function deletes due rows of its policy's table and nothing else, for any caller and under any settings; it writes
//     its ledger row first and its result last, and accepts only a claim of its own transaction.
//   - The executor's login may call the functions, and may do nothing else with a user's table.
//   - A run reaches each due row once, by a pick or in a range, in the order of (column, key). A row that was locked or moved during
//     the pass is looked for once more. What is left then is left for the next run.
//   - The cutoff of a run is the server's clock, read once.
//
// # What it refuses
//
// In a policy file: everything that it does not know, reported at once, each with its place and the fix. A table whose deletes would leave no
// trace (unlogged, foreign), or would make the application's own deletes fail (no usable replica identity); single partitions, old-style
// inheritance, temporary and system tables; triggers, rules and foreign keys that would make a deletion do more than the policy says;
// functions that PostgreSQL would run while it plans or executes a deletion, unless a superuser owns them (see lapse.intruders); two policies
// on one table. A run: of a policy that is not armed, on a table that changed since apply, or under an implausible clock: more than five
// seconds off, before the last cutoff, or further after it than lapse.measure says. A batch: see schemas/sqlstate.go, with one SQLSTATE for
// each reason; a refused batch leaves nothing.
//
// # Order
//
//	ParseAll          texts → *policyfile.File                      pure, in planner/policyfile
//	Difference        *policyfile.File + what is in force → []Change      reads; compares with the record first, then Resolve
//	Resolve           Policy + catalog → Resolved                   reads; finds table, leaves, key, cascades, index
//	Write             Change → version, functions, gate, state      one transaction, the gate's lock first
//	advance_arming    arming → armed                                the executor, when the auditor has passed
//	LoadInForce       → InForce, with Schedule and runs             the executor, each round
//	lapse.due_…()     which leaves have a due row                    one statement, read-only; before a run is opened
//	run.Open          InForce → Run, shards for these leaves        one transaction
//	lapse.delete_…()  a shard's next batch                          the executor's transaction: find, claim, delete, result
//	lapse.find_…()    where its rows are, as values                 called by lapse.delete_… alone; changes nothing
//
// The states of a policy are in schemas/state.go. The table in change/arming.go says which state a change of the file leads to, and whether
// its version comes into force or is held back. These commands act without the file:
//
//	apply --arm     the version that is held back comes into force → arming
//	policy arm      the same; and observing, or paused → arming
//	policy pause    any → paused
//	policy resume   paused → the state before; arming for armed. If more may fall due than was accepted: observing, held back
//
// After a restore was accepted, and when the slot is made, all states are written again: RestateAll, armed → arming.
//
// "More" is everything that is not certainly less: see moreFallDue. What counts as accepted is the version in force (while the newest is
// held back, that is the one before it) and the last armed version, under the policy's name and on its table: see change/accepted.go. A
// version is no longer held back when a person arms it, when the file says observing or paused, or when an edit replaces it by a version
// under which no more falls due than was accepted. Applying the same file again does not change it.
//
// lapse.gate names the version in force and the one that is held back. Both have functions; lapse.enter lets the first delete, and refuses
// the other with LP002.
//
// A policy that is not in the file stays as it is until it is pruned. If its name comes back later, it keeps its id and continues its versions.
//
// A change that pauses, drops, observes or lengthens a policy, or alters its schedule, batch, owner, basis or latitude, is made from what is
// on record. It takes no lock on the table and checks nothing of it; problems of the table are only warnings.
//
// # When something fails
//
//	what                                          what is left                       what follows
//	we die in Difference or Resolve               nothing                            the next apply
//	we die in Write                               what was in force                  the next apply
//	two apply at once                             the first one's; the other gets    the second, which reads the difference again
//	                                              ErrChangedMeanwhile
//	a table no longer fits, or is gone            the version in force               a person, who pauses or drops it; apply of the
//	                                                                                 same file warns, and changes the others
//	a batch runs while its policy is changed      Write waits for the batch          –
//	a batch comes when its policy was changed     LP002, or 42883 when the former    the executor loads again
//	                                              version's function is gone
//	we die in run.Open                            no run, or a whole one             the next run.Open returns it
//	two open a run at once                        one run                            both
//	a version changes with a run unfinished       the run, closed by the next        the next run, of the new version
//	                                              run.Open
//	the executor dies in a batch                  the shard's cursor before it       the next holder of the lease
//	a row of a range is locked by somebody        nothing of the batch; LP023 where  the next batches, which pick their rows
//	or too many are loaded into it                rows were loaded
//	a row is locked by somebody                   the row                            the residual pass, or the next run
//	a row is refreshed between pick and delete    the row: it was locked first; in   –
//	                                              a range, the DELETE sees it, or
//	                                              leaves it for that pass where a
//	                                              sidecar's row has moved
//	a partition is made while a run goes on       its rows                           the next run
//	a partition is dropped or detached            LP005                              the next run
//	a partition that we drop is written to, or    nothing; 55P03                     the next try: the writer goes first
//	somebody waits to write to it
//	a table is dropped, renamed or swapped        LP005, with and without a run      apply
//	the clock is before the last cutoff           LP016                              a person, who sets it or accepts it
//	the clock is far after it                     LP017                              a person, who sets it or accepts it
//	a column is made again, or another type       LP011                              apply
//	what is deleted from is not published         LP012                              apply
//	a trigger is made on what a delete reaches    LP006                              a person, who drops it or disables it
//
// # Reading it
//
// No room imports a room listed above it:
//
//	database   what a table is, and what hangs on it; counts that give way
//	index      which index finds the due rows, and which is missing
//	record     policy versions on record, and what is in force
//	resolve    a policy of the file compared with its table
//	survey     counting: plan, breaker, what is left
//	run        looks, runs, and what is in their way
//	change     from what is in force to what the file says
//	hold       the rows that a hold names; imports database alone
//
// The rooms expiry, expression, functions, policyfile and schedule are below all of these. scaffold.go makes an expiry column for an
// application, and hide.go hides due rows from it; both are SQL without a policy in force. The tests here cover all rooms together.
//
// expiry/age.go says when a row is due, package functions how a batch finds it and what deletes it; testdata/explain has the plans.
//
// # Where the next thing goes
//
//	a kind of expiry        expiry/, one file; see its doc.go
//	a key of a policy       policyfile/keys.go; its checks against the table: a step of resolution (resolve/resolve.go); record/spec.go to keep it.
//	                        Whether a change of it needs the table: ofTable in resolve/entry.go, which assumes so for a new key
//	a way to say when       schedule/
//	an action               functions/: another statement in the batch (soft.go), or a template of its own (drop.sql.tmpl, drop.go)
package planner
