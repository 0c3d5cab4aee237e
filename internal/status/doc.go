// Package status reads the state of policies, deletion and audit, and has the words for it: states, why due rows stay, what a policy's next
// run waits for, and whether a person must do something. Command line and web page show the same values; neither queries for them.
//
//	status.go      the whole: executors, audit, whether it needs a person
//	policies.go    the policies in force, as the catalog has them
//	records.go     what the catalog says of all of them, a query a kind
//	policy.go      one policy, and what a person should know of it
//	run.go         its last run
//	work.go        what executors say of it, and what its next run waits for
//	halt.go        the switch for all policies
//	holds.go       legal holds, as numbers
//	days.go        what was deleted, by day
//	shown.go       one version of a policy, for `lapse policy show`
//	past.go        its history, for `lapse policy history`
//	text.go        sizes and times for a person
//
// JSON tags are the contract of --json. Texts may hold what a login wrote, line breaks too: who shows them escapes them.
package status
