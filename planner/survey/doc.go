// Package survey counts what is due under a policy, and deletes nothing.
//
//	Ask        what a policy in force would delete, and how long it would take    survey.go, found.go, explain.go
//	Draft      the same of a version that is not applied                          draft.go; drops.go, draftwarn.go
//	Judge      whether the breaker opens before a run                             breaker.go
//	Remaining  what a run left; Staying: what is due while a policy cannot delete remains.go
//	ReadBacklog  where to cut leaves for several workers                        range.go
//
// The survey function of the policy version counts, with the condition of its deletions. A count goes only as far as asked, yields to sessions that
// wait to change the table, and becomes an estimate if it would take too long. localtime.go and unread.go say what a person should check in the
// values.
package survey
