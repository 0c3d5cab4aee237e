// Package survey counts what is due under a policy, and deletes nothing.
//
//	Ask        what a policy in force would delete, and how long it would take    survey.go, found.go, explain.go
//	Draft      the same of a version that is not applied                          draft.go; drops.go, draftwarn.go
//	Judge      whether the breaker opens before a run                             breaker.go
//	Remaining  what a run left, and Staying what something keeps                  remains.go
//	ReadBacklog  where to cut leaves for several workers                        range.go
//
// The survey function of the policy version counts, with the condition that its deletions have. A count goes no further than it is asked to,
// gives way to somebody who waits to change the table, and is an estimate where it would take too long. localtime.go and unread.go say what
// a person should see in the values.
package survey
