// Package policyfile reads and writes the policy file: its keys, their places, and what is wrong with them. It uses no database; texts
// that only PostgreSQL can read are kept as they were written.
//
//	file.go       one file or several, and what their policies may not have in common
//	keys.go       the table of a policy's keys: how each is read, written and shown; Terms, which a version on record keeps
//	reading.go    the keys that are read in their own way, and what is wrong with them together
//	write.go      a policy as text; Parse reads the same policy from it
//	problem.go    what is wrong with a policy, by its keys; in a file, with the place
//	expire.go     the key expire, with Spanner's short form
//	policy.go     what one entry says
//	document.go   what a key and a text may be, on top of internal/yamldoc
//
// It reports everything that is wrong at once, each with file, line, column and the nearest valid name, and no text makes it panic. Along with
// the errors it returns the policies that have none, so that the same run can compare them with the database. It refuses keys that it does not
// know.
//
// A new key of a policy is a field of Terms and a line in keys, both in keys.go; the record, differences and the writer take it from there.
// It must also be added to schemas/policies.schema.json, which accepts the same as the parser, and to docs/configuration.md. testdata has
// a file for each mistake, and for each form that is none. A new key of expire comes with its kind in planner/expiry.
package policyfile
