// Package policyfile reads the policy file: its keys, their places, and what is wrong with them. It asks no database; texts
// that only PostgreSQL can read are kept as they were written.
//
//	file.go       the file's keys, each read into its field of Policy
//	policy.go     what one entry says
//	document.go   what a key and a text may be, on top of internal/yamldoc
//
// It promises that all that is wrong is said at once, each with file, line, column and the nearest valid name, and that no
// text makes it panic. It refuses keys that it does not know; those of later versions by name.
//
// A new key of a policy is a case in policyField; a new key of expire comes with its kind in planner/expiry.
package policyfile
