// Package audit publishes what was deleted, says who did it, and keeps the log that proves it. It believes the
// write-ahead log and nobody else.
//
// # What it promises
//
// Every row deleted from a published table, by a transaction that committed, is in its topic once, whatever dies: in
// one partition, by its key, behind every event of a former transaction; system deletes in one topic, everybody else's
// and the unverified in another. A truncated table is one event in each partition of the second. Every transaction with
// events, or with a word of its own in the ledger, has one record in the log, behind its events and before the slot
// moves on.
//
// The same WAL, read with the same keys by the same route, gives the same bytes, whenever it is read: what an event says
// and where it goes is decided by two pure functions, classify (Classifier) and route (Router).
//
// The auditor's whole state is the slot and the topics. It can be killed, moved and started anywhere.
//
// # One row, in the order of the files
//
//	classify.go    is it the system's, a user's, or unverified: a state machine over one transaction
//	ledger.go      the claim, read out of the ledger's row, whoever wrote it
//	account.go     what a transaction claimed and what was seen of it; reconcile.go compares the two
//	event.go       the facts of one deletion; spanner.go and json.go make bytes of them
//	router.go      topic, partition, key and headers, by a route.go
//	relay.go       from the stream to the publisher (audit/kafka), without what is there already
//	settle.go      records into the log (log.go), positions to the slot
//	life.go        the order of a start, and what is done when something breaks; start.go asks where the topics end
//
// # Order of durability
//
//	events appended ─▶ acknowledged ─▶ record in the log ─▶ acknowledged ─▶ end LSN confirmed to the slot
//
// Transactions go through it one behind the other, and none waits for the one before. Positions without events are
// confirmed up to a coverage record: each minute while they move, and within about a second when somebody waits: a
// server that asks, a policy that is to be armed, a heartbeat.
//
// # Order of a start
//
//	      ┌────────────── pause ◀── PostgreSQL away, slot in use ────────────┐
//	      ▼                                                                  │
//	START_REPLICATION ─▶ InitProducerID ─▶ fences ─▶ tails ─▶ origin, route ─┤ (a new log only)
//	the slot is ours     ours is the newer epoch, in every partition         ▼
//	      ▲                                                            ┌─ streaming ─┐
//	      │                                      stream breaks, server │             │ ctx ends, Until reached
//	      │ ErrRestart: the brokers              stops without Kafka   ▼             ▼
//	      └─ have forgotten us ──────────────── open again, go on ◀── rest       drain ─▶ confirm ─▶ close
//	                                            by what is remembered
//
// # Who deletes
//
// System is only what stands under a claim that verifies: the transaction's first published change is a row of
// lapse.batch, of this database and this transaction, started within a day of the commit, signed with a tag key. It
// covers deletes of its target and of the relations it lists, up to its batch_result. Everything else under it is
// unverified, and so is everything from any other lapse.batch row on: a row that does not verify, a second one, and also
// a true one behind somebody's own change (what came before stays user). A TRUNCATE is never the system's: no deletion
// function truncates. A row that cannot be read proves nothing, and stops nothing.
//
// # What fails, and what comes of it
//
//	what fails                                what comes of it
//	the auditor dies, anywhere                the slot sends again; log and tails say what is there: commit in relay.go
//	the stream breaks                         opened again, with pauses; what is on its way is remembered
//	PostgreSQL dies, and forgets what was     what it sends again ends below the log's end and is dropped
//	 confirmed
//	PostgreSQL is stopped (fast)              it asks for what is confirmed and gets a coverage record at once; if Kafka
//	                                          does not answer, or there is too much to read, it is left after two or
//	                                          three seconds: the slot keeps everything
//	Kafka is away                             nothing is lost and nothing confirmed; what fits into the buffer is read,
//	                                          then reading stops; Ready says so; the executor stops deleting by itself
//	the publisher must be opened anew         the whole start again, from the tails
//	another auditor starts                    it waits for the slot; if it gets it, it fences this one, which ends
//	slot without its log, log behind slot     *RefusalError: nothing is published, nothing confirmed
//	topic of another database, a stray write  *RefusalError
//	topics, partitions or slot changed        *RefusalError: a log has one route so far
//	a change that cannot be decoded, an       the process ends: nothing is ever skipped
//	 event larger than a topic takes
//	a heartbeat that cannot be written        a warning: it is the executor that draws the conclusion
//
// What passes by itself is tried again for ever; what does not is Run's error.
//
// # What it does not do yet
//
// An update that moves a row to another partition arrives as a delete and an insert, and is published as a user's
// delete. A slot that was lost, and positions that go back after a restore, end the process instead of being recorded.
package audit
