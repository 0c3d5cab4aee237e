// Package history asks whether the database is the one that the log is of, and where a start goes on.
//
// Two copies of one database give one position to two transactions, and nothing in the stream shows it. So each start makes a
// Check before anybody is fenced, and again whenever the stream is opened again. The Check reads the topics (Topics), the
// database's own record of its past (Catalog), and what the slot sends again. It writes nothing, confirms nothing and fences
// nobody: what it finds (StartingPoint, Result) the auditor acts on.
//
// # In the order of a check
//
//	check.go          Run: the order of the questions below
//	topicstate.go     what the topics say: the log's end, the tails of the partitions; tails.go, ends.go
//	lastroute.go      which route is in force at the log's end?
//	catalog.go        what the database says of its own past
//	samelog.go        is the log of this database, with these keys, and in its history?
//	fork.go           up to which position do timelines and heartbeats allow that both are the same?
//	comparison.go     are the transactions that the slot sends the ones that the log has?
//	foreigntail.go    are the events above the log's end of this database?
//	otherauditor.go   does another auditor write the log?
//	startingpoint.go  where the start goes on, and which markers it writes
//
// # What it comes to
//
//	outcome    what the start does
//	new        begins a log, at the slot's own beginning
//	straight   goes on
//	promoted   goes on, with a rewind at the fork if the standby lacked something and that is little
//	gap        goes on, with a gap: init has made the slot again, or topics have lost what was in them
//	accepted   goes on, with a rewind at the fork that a person accepted
//	bent       waits for a person: BentError
//
// Any other reason not to go on is a RefusalError (refusal.go), which says what to do.
//
// # What it trusts
//
//	the log's records          their order and content: the brokers keep them, and only auditors may write there
//	a record's place           nothing: old records may have been copied to the end of a topic, so positions decide
//	the tails                  nothing: each must be an event that the slot sends, or a marker of this start
//	the catalog's heartbeats   that they are there, with their nonces: a copy has those of before it was made
//
// # Where to add
//
//	another reason not to go on    a question in checkLog, with its reason in refusal.go
package history
