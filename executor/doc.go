// Package executor deletes what is due, batch by batch, through the deletion functions that the planner made. It holds no
// privilege to delete anything itself.
//
// # What it promises
//
//   - Exactly the rows go that a deletion function finds due at the run's cutoff, with a ledger row, signed before
//     anything is deleted, in the same transaction.
//   - It may be killed at any instant, as often as one likes, and any number of executors may run: nothing is lost,
//     nothing is done twice. All state is in the database: cursor, counts and ledger of a batch commit with its rows.
//   - Nothing is deleted without a healthy audit, unless the installation says that none is required; never on a standby.
//   - One policy in trouble does not stop the others, and none waits longer than the turns of those before it.
//   - Nothing of a policy's table is read or run in the session that takes leases, and nothing that a table's code does to
//     the session for batches outlives its batch.
//   - No row's keys or values reach a log, an error or a metric: see ServerError.
//
// # What it refuses
//
// A tag key shorter than 32 bytes; a policy that is not armed; a clock more than five seconds off the server's; counts
// that do not add up. The deletion function refuses the rest, whoever calls it: see schemas/sqlstate.go.
//
// # Order
//
//	round       read the list, look at the audit, advance arming policies       executor.go, once.go, health.go
//	 └ turn     open or resume the policy's run                                  turn.go; planner.OpenRun
//	    └ shard claim a lease; give it back however this ends                    lease.go
//	       └ batch
//	          1  clean session, BEGIN, xid, clock, functions  one round trip     batch.go, functions.go
//	          2  claim and MAC; the deletion function; are
//	             the functions still what they were?          one round trip
//	          3  compare the counts; COMMIT                   one round trip
//	          ?  no answer to COMMIT: wait until it is known                     outcome.go
//
// A turn ends when the run is over, its share of rows and time is used up, or something is in the way; then it is the
// next policy's. The list is read afresh for each round.
//
// # When something fails
//
//	what                                      is left                      what follows
//	this process dies                         see batch.go and lease.go    whoever claims the shard goes on, within 30 s
//	this process is stopped past its lease    nothing                      refused by the term of its lease
//	the server dies or restarts               whole batches                connected again with growing pauses, run resumed
//	no answer to COMMIT                       all of the batch or nothing  settled by pg_xact_status and ledger; in progress
//	                                                                       is waited for, never guessed
//	deadlock, lock timeout, gate changed      nothing of the batch         Retry: the policy pauses, each time longer
//	statement timeout, a row that resists     nothing of the batch         Halve: at once, with half the rows
//	the same, with one row                    nothing of the batch         PutAside: the shard is out of this run, the others
//	                                                                       go on; tried again in the first run after a pause
//	schema, trigger, permission, a function   nothing of the batch         StopPolicy: until its next scheduled time, and
//	that is not ours, damaged data, any other                              readiness says so
//	SQLSTATE of a policy's own call
//	an error of this program's                nothing of the batch         StopProcess: Run returns it
//	slot missing, lost, unread or behind,     whole batches                Refusal: Run waits and goes on by itself
//	or everything is paused
//
// What goes into which line is decided in one function: grade.go.
package executor
