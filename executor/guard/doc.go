// Package guard says whether a batch may run: each guard is one reason to go on, slow down, wait or refuse.
//
// # What it promises
//
//   - It fails closed: what a reading of the database did not show is not there, and what is not there is refused.
//   - One look is one statement, whatever the number of guards: Read fills Facts, and guards are pure functions over the
//     facts and over what former looks showed (Memory).
//   - What spares the application is not asked for a policy with pace: unlimited; what keeps the evidence, and standbys from being
//     left far behind, is: see Question.unlimited.
//   - What the login may not see counts as nothing to worry about; `lapse doctor` says what that is. Evidence is never among it.
//   - A position is taken as above a batch only if it was asked for after that batch had ended, whichever of several
//     workers asked: see Unconfirmed.
//
// # What it refuses
//
// To believe a database about its own past. It agrees with itself after any restore. The auditor, which has the log, says
// with each heartbeat that the past is the right one, for the server as it runs: another start, timeline or history makes
// the heartbeat void.
//
// # Order
//
// All lists the guards, the most fundamental first. Strictest asks each of them and returns the strictest answer, the first
// one of those that are equally strict, so that a person reads the cause and not its consequences. The executor asks in
// one place (executor/guards.go), which logs changes, counts and applies the answer.
//
//	answer   a batch                                    lapse run --once
//	Go       runs                                       goes on
//	Slow     runs; the pause after it is stretched      goes on
//	Wait     does not run until a later look says so    waits
//	Refuse   the same; a person must do something       ends with the refusal
//
// # When something fails
//
//	what                                     what follows
//	the look itself                          no answer: the caller grades the error, and nothing runs meanwhile
//	the process, and so its memory           the present position must be confirmed: it is above every batch of a former process
//	an answer to COMMIT that never came      the batch counts as ended when its outcome is known
//
// # Where the next guard goes
//
// A file of its own and one line in All. What it has to read goes into Facts and into the one statement of Read. A guard
// that concerns one policy answers Go where Question.Policy is nil.
//
//	a jump of the server's clock            there: clock.go; others are measured where runs are opened
//	a restore, a clone or a promotion       there: heartbeat.go, and accepted.go where no audit is required
//	what the server has to bear             there: headroom.go, replicas.go, waiters.go, connections.go, snapshots.go, vacuum.go, over load.go
package guard
