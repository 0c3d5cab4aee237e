// Package status reads the state of policies, deletion and audit, and words it: states, why due rows stay, what a policy's next run waits
// for, and whether a person must act. Command line and web page show the same values; neither runs queries of its own for them.
//
//	status.go      the whole: executors, audit, whether it needs a person
//	policies.go    the policies in force, as the catalog has them
//	records.go     what the catalog says about all of them, one query for each kind
//	policy.go      one policy, and what a person should know about it
//	run.go         its last run
//	work.go        what executors report about it, and what its next run waits for
//	halt.go        the switch for all policies
//	holds.go       legal holds, as numbers
//	days.go        what was deleted, by day
//	shown.go       one version of a policy, for `lapse policy show`
//	past.go        its history, for `lapse policy history`
//	text.go        sizes and times for a person
//
// JSON tags are the contract of --json. Texts may contain what a login wrote, including line breaks: escape them before you show them.
package status
