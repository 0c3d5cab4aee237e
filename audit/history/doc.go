// Package history checks whether the log belongs to the database, and decides where a start continues.
//
// Two copies of one database give one position to two transactions, and nothing in the stream shows it. So each start makes a
// Check before it fences another auditor, and again whenever the stream is opened again. The Check reads the topics (Topics), the
// database's own record of its past (Catalog), and what the slot sends again. It writes nothing, confirms nothing and fences no
// auditor: the auditor acts on its result (StartingPoint, Result).
//
// # In the order of a check
//
//	check.go          Run: the order of the questions below
//	topicstate.go     what the topics say: the log's end, the tails of the partitions; tails.go, ends.go
//	lastroute.go      which route is in force at the log's end?
//	catalog.go        what the database says about its own past
//	samelog.go        does the log belong to this database, with these keys, and in its history?
//	fork.go           up to which position can both be the same, by timelines and heartbeats?
//	comparison.go     does the slot send the same transactions that the log has?
//	foreigntail.go    are the events above the log's end from this database?
//	otherauditor.go   does another auditor write the log?
//	startingpoint.go  where the start continues, and which markers it writes
//
// # Outcomes
//
//	outcome    what the start does
//	new        begins a log, at the slot's own beginning
//	straight   continues
//	promoted   continues, with a rewind at the fork if the standby lacked a little
//	gap        continues, with a gap: init has made the slot again, or topics have lost records
//	accepted   continues, with a rewind at the fork that a person accepted
//	bent       waits for a person: BentError
//
// Any other reason not to continue is a RefusalError (refusal.go), which says what to do.
//
// # What it trusts
//
//	the log's records          their order and content: the brokers keep them, and only auditors may write there
//	a record's place           nothing: old records may have been copied to the end of a topic, so positions decide
//	the tails                  nothing: each must be an event that the slot sends, or a marker of this start
//	the catalog's heartbeats   that they exist, with their nonces: a copy has those from before it was made
//
// # Where to add
//
//	another reason to refuse        a check in checkLog, with its reason in refusal.go
package history
