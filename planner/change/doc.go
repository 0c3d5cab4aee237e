// Package change leads from the versions in force to those of a policy file.
//
//	Difference     what Write would do about each policy                          difference.go, share.go
//	arming.go      the table: which state follows, and what waits for a yes       over accepted.go
//	Write          a version, its functions, gate and state, in one transaction   write.go
//	Pause, Arm, Resume, RestateAll   what a person says without the file          pause.go, restate.go
//	Survey, DraftDifference   before anything is applied                          draft.go
//
// The order of steps, and what a crash leaves, are in package planner.
package change
