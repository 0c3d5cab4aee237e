// Package guard says whether a batch may run: each guard is one reason to go on, slow down, wait or refuse.
//
// # What it promises
//
//   - It fails closed: what a reading of the database did not show counts as absent, and what is absent is refused.
//   - One reading is one statement, whatever the number of guards: Read fills Facts, and guards are pure functions over the
//     facts and what earlier readings showed (Memory).
//   - Guards that spare the application do not apply to a policy with pace: unlimited. Guards that protect the evidence, or keep
//     standbys from lagging far behind, do: see Question.unlimited.
//   - What the login may not see counts as harmless; `lapse doctor` says what that is. Evidence is never part of it.
//   - The auditor's position covers a batch only if it was read after that batch had ended, whichever worker read it: see
//     Unconfirmed.
//
// # What it refuses
//
// To believe a database about its own past, because after a restore its contents are consistent too. The auditor has the log. Each of its
// heartbeats confirms the past of the server as it runs: another start, timeline or history voids the heartbeat.
//
// # Order
//
// All lists the guards, the most fundamental first. Strictest asks each of them and returns the strictest answer. Of equally strict
// answers the first wins, so that a person reads the cause and not its consequences. The executor asks in one place
// (executor/guards.go), which logs changes, counts and applies the answer.
//
//	answer   a batch                                    lapse run --once
//	Go       runs                                       goes on
//	Slow     runs; the pause after it is stretched      goes on
//	Wait     does not run until a later reading allows  waits
//	Refuse   the same; a person must do something       ends with the refusal
//
// # When something fails
//
//	what                                     what follows
//	the reading itself                       no answer: the caller grades the error, and nothing runs meanwhile
//	the process, and so its memory           the present position must be confirmed: it is above every batch of a former process
//	an answer to COMMIT that never came      the batch counts as ended when its outcome is known
//
// # Where the next guard goes
//
// A file of its own and one line in All. What it has to read goes into Facts and into the one statement of Read. A guard
// that concerns one policy answers Go if Question.Policy is nil.
//
//	a jump of the server's clock            clock.go; jumps between runs are measured when a run is opened
//	a restore, a clone or a promotion       auditor.go, and accepted.go if no audit is required
//	the load of the server                  headroom.go, replicas.go, waiters.go, connections.go, snapshots.go, vacuum.go, over load.go
package guard
