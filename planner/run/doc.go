// Package run is what the executor and doctor ask about a policy in force, outside of its batches.
//
//	Look     which leaves have a due row, before a run is opened     look.go
//	Open     the unfinished run, or the next one                     run.go, with what is refused
//	Inspect  what blocks the policy or slows it down   inspect.go; index.go for each look
//
// breaker.go opens the breaker and records a person's acceptance; quarantine.go says what to do about rows that resist.
package run
