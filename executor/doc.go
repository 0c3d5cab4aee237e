// Package executor deletes what is due, batch by batch, through the deletion functions that the planner made. It holds no
// privilege to delete anything itself.
//
// # What it promises
//
//   - It deletes exactly the rows that a deletion function finds due at the run's cutoff, and writes a ledger row, signed before
//     anything is deleted, in the same transaction.
//   - It may be killed at any instant, and any number of executors may run: no row is lost or counted twice. All state is in
//     the database: cursor, counts and ledger of a batch commit with its rows.
//   - It deletes nothing without a healthy audit, unless the installation says that none is required; and never on a standby.
//   - One policy in trouble does not stop the others, and none waits longer than the turns of those before it.
//   - The session that takes leases reads and runs nothing of a policy's table, and what a table's code does to the session
//     for batches does not outlive the batch.
//   - No row's keys or values reach a log, an error or a metric: see ServerError.
//
// # What it refuses
//
// A tag key shorter than 32 bytes; a policy that is not armed; a clock more than five seconds off the server's; counts
// that do not add up. The deletion function refuses the rest, for every caller: see schemas/sqlstate.go.
//
// # Order
//
//	worker     asks the scheduler what to do next                           worker.go
//	 ├ list     asks the guards, reads the policies, advances arming ones   worker.go, guards.go, readiness.go
//	 └ turn     opens or resumes the policy's run, or helps with it, and    turn.go; run.Open
//	    │       grades the error that ends it, here alone                   trouble.go, grade.go
//	    ├ before a run: which leaves have a due row?                        look.go
//	    │       of policies in which nothing was due: many at once          looks.go
//	    │       and is that as many as expected?                            breaker.go
//	    └ shard acquires a lease; gives it back however this ends           shard.go, batch/lease.go
//	          1  at gentle pace: the pause after the last batch             pace.go
//	          2  the guards: go, slow, wait or refuse                       guards.go, guard/
//	          3  drop the whole leaf, once, if the policy does that        drop.go
//	          4  or a batch of rows                                         deleting.go
//	             the policy's rate, max_rows_per_run                        allowance.go
//
// A batch is one transaction. Only executor/batch can delete rows: its doc.go has the steps and what a crash leaves. If COMMIT gets no
// answer, executor/outcome.go waits until the outcome is known, and never guesses it.
//
// There is one scheduler (scheduler.go). It stops when its goal is reached (goal.go): Run never reaches its goal; Once does when the run
// of each of its policies is over or cannot go on (once.go).
//
//	          next           list, guards go        shard acquired
//	[waiting] ────▶ [listing] ──────────▶ [in turn] ──────────────▶ [in batch]
//	    ▲  changed, time │ refused            │  ▲ shard done            │
//	    └────────────────┴────────────────────┘  └───────────────────────┘
//	                       turn over: run over, share used up, limited, refused, blocked, stopped
//
// Several workers share the scheduler, each with a session and leases of its own. A policy has one turn at a time, and but for shared
// looks at most one each time the policies are listed; the next turn is that of the policy that has waited longest. A turn ends when the run is over, when
// all its workers together have used up its share of rows and time, or when something blocks it. If no policy is due, a free worker helps
// with a turn whose run has another shard. What a policy's workers learn they share (memory.go), in parts: programs.go, pauses.go,
// sizing.go, locks.go, runmemory.go, quiet.go. A batch that a row resists is cut down to that row by search.go.
//
// A shard is a slice of a leaf: all of it, a range of its order or a hash part (schemas/migrations/0001_09_runs.sql).
// Before a run is opened, ranges.go decides into which ranges to cut its leaves, and which leaves to read in the order of their files. The
// rest of the executor does not depend on the size of a slice. How a batch finds its rows is in shape.go.
//
// # When something fails
//
//	what                                      is left                      what follows
//	this process dies                         see batch/doc.go           another worker takes the shard when the lease has ended
//	this process is stopped past its lease    nothing                      refused by the term of its lease
//	one worker's connection is lost           nothing of its batch         the policy pauses; the worker connects again, and gives
//	                                                                       its shard back first
//	a connection goes silent                  the same, or an unknown      it is given up after answerTime (batch/patience.go), and is lost
//	                                          COMMIT
//	one worker has no connection              nothing                      logged once; it tries again, the others work on
//	no reading of the audit for blindTime     whole batches                readiness says so
//	the server dies or restarts               whole batches                connected again with growing pauses, run resumed
//	no answer to COMMIT                       all of the batch or nothing  decided by pg_xact_status and ledger; in progress
//	                                                                       is waited for, never guessed
//	lock timeout in a range                   nothing of the batch         the next batches are picks, which pass over locked
//	                                                                       rows: shape.go
//	deadlock, lock timeout, gate changed      nothing of the batch         Retry: the policy pauses, each time longer
//	statement timeout, a row that resists     nothing of the batch         Halve: at once, with fewer rows
//	the same, with one row                    nothing of the batch         StepOver: the row alone, once more; if it resists it
//	                                                                       is entered in the quarantine: quarantine.go
//	an index is dropped                       whole batches                the run goes on, and status names it: index.go
//	not even one row is found in time, or a   nothing of the batch         PutAside: the shard is out of this run, the others
//	lock that is on no single row                                          go on; tried again in the first run after a pause
//	a partition is gone                       nothing of the batch         Retry: its shard is gone with the next reading of the run
//	most rows of a run resist                 those in quarantine stay     StopPolicy: the cause is the schema
//	schema, trigger, permission, a function   nothing of the batch         StopPolicy: for all its workers, until its next
//	that is not ours, damaged data, any other                              scheduled time, and readiness says so
//	SQLSTATE of a policy's own call
//	an error of this program's                nothing of the batch         StopProcess: the other workers end their batches,
//	                                                                       and Run returns it
//	max_rows_per_run is reached               whole batches                the run ends; the next one goes on
//	the policy's window closes                whole batches                the run waits, and goes on when it opens
//	more is due than was to be expected       nothing; no run              a guard refuses until somebody says yes
//	slot missing, lost, unread or behind,     whole batches                a guard refuses: Run waits and goes on by itself
//	or everything is paused
//
// grade.go alone decides which line applies. It grades a batch's error first, because the next batch may be a different one
// (trouble.go). It grades every other error, and what remains of that one, when the turn's worker is done (turn.go).
//
// # Where to add
//
//	a reason to slow down, wait or refuse    one file in guard/ and one line in guard.All
//	another action                           a function of the planner's (planner/doc.go), called as drop.go calls one
package executor
