// Package policyfile reads the policy file: its keys, their places, and what is wrong with them. It asks no database; texts
// that only PostgreSQL can read are kept as they were written.
//
//	file.go       one file or several, and what their policies may not have in common
//	reading.go    a policy's keys, each read into its field of Policy
//	expire.go     the key expire, with Spanner's short form
//	policy.go     what one entry says
//	document.go   what a key and a text may be, on top of internal/yamldoc
//
// It promises that all that is wrong is said at once, each with file, line, column and the nearest valid name, and that no
// text makes it panic; and that the policies of which nothing is wrong are there beside the errors, so that the database can be
// asked about them in the same run. It refuses keys that it does not know.
//
// A new key of a policy is a line in fields, and in schemas/policies.schema.json, which says the same as the parser: testdata has
// a file for each mistake, and for each form that is none. A new key of expire comes with its kind in planner/expiry.
package policyfile
