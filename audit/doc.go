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
// and where it goes is decided by package evidence alone.
//
// The auditor's whole state is the slot and the topics. It can be killed, moved and started anywhere.
//
// # One row, in the order of the files
//
//	evidence/assembler.go   a transaction's changes become events and records: the pure part, see package evidence
//	evidence/classify.go    is it the system's, a user's, or unverified
//	evidence/router.go      topic, partition, key and headers, by a route.go; spanner.go makes bytes
//	relay.go                from the stream to the publisher (audit/kafka), without what is there already
//	commit.go               what a transaction leaves when it ends; alarm.go stops every deletion where it must
//	flush.go                records into the log, positions to the slot; coverage.go where there was nothing
//	life.go                 the order of a start, and what is done when something breaks
//	past.go                 what the topics say; judge.go and compare.go hold it against the database
//	start.go                what a start writes first
//
// # Order of durability
//
//	events appended ─▶ acknowledged ─▶ records in the log ─▶ acknowledged ─▶ end LSN confirmed to the slot
//
// A transaction may have several records. Its end counts as reached, and is confirmed, with the last of them.
//
// Transactions go through it one behind the other, and none waits for the one before. Positions without events are
// confirmed up to a coverage record: each half minute while they move, and within about a second when somebody waits: a
// server that asks, a policy that is to be armed, a heartbeat.
//
// # Order of a start
//
//	      ┌──────── pause ◀── stream breaks, slot in use, PostgreSQL away, the brokers have forgotten us ───────┐
//	      ▼                                                                                                     │
//	START_REPLICATION ─▶ check ─▶ InitProducerID ─▶ fences ─▶ tails ─▶ origin, route, gap, rewind ─▶ streaming ─┤
//	the slot is ours     past.go  ours is the newer epoch,    those that              as needed                 │
//	                     judge.go in every partition          were judged                       ctx ends, Until reached
//	                     compare.go                                                             drain ─▶ confirm ─▶ close
//
// # Histories
//
// In two copies of one database one position is given to two transactions, and nothing in the stream shows it. So before
// anybody is fenced, and whenever the stream is opened again, the check (judge.go) asks whether this database is the one
// that the log is of: the history's number and nonce, the timelines that the server left, the log's last heartbeat, and
// then, transaction by transaction, what the slot sends again (compare.go). Where that is so, the start goes on; where a
// standby was promoted, with a rewind at the fork if it lacked something, as long as that is little; where the slot was
// made anew, with a gap. Where it is not so, the auditor waits for a person. Heartbeats (beat.go) are rows that the auditor
// writes into the database and reads back: each names the one before it, so that one that was not sent is missed, and the
// server that it was written on, by which copies are told apart; the deletion functions want a fresh one.
//
// A gap and a rewind (evidence/marker.go) are events of their own, in every partition, at positions that no change can have.
//
// # Who deletes
//
// System is only what stands under a claim that verifies: the transaction's first published change is a row of
// lapse.batch, of this database and this transaction, started within a day of the commit, signed with a tag key. What is
// signed includes the digest of the functions that ran, so that a claim says by which text it deleted; the transaction's
// record carries it. A claim covers deletes of its target and of the relations it lists, up to its batch_result.
// Everything else under it is unverified, and so is everything from any other lapse.batch row on: a row that does not
// verify, a second one, and also a true one behind somebody's own change (what came before stays user). A TRUNCATE is
// never the system's: no deletion function truncates. A row that cannot be read proves nothing, and stops nothing.
//
// # What fails, and what comes of it
//
//	what fails                                what comes of it
//	the auditor dies, anywhere                the slot sends again; log and tails say what is there: commit in commit.go
//	the stream breaks                         the whole start again, with pauses, the check of Histories included
//	PostgreSQL dies, and forgets what was     what it sends again ends below the log's end and is dropped
//	 confirmed
//	PostgreSQL is stopped (fast)              it asks for what is confirmed and gets a coverage record at once; if Kafka
//	                                          does not answer, or there is too much to read, it is left after two or
//	                                          three seconds: the slot keeps everything
//	Kafka is away                             nothing is lost and nothing confirmed: the slot stands and PostgreSQL keeps
//	                                          its WAL (max_slot_wal_keep_size bounds it, and then the slot is lost); what
//	                                          fits into the buffer is read, then reading stops; Ready is an error, and
//	                                          /readyz 503, once something has waited for five seconds; deletion stops
//	                                          when a batch has not been confirmed for a minute (executor/health.go)
//	a topic is deleted, or made again, under  kafka.ErrTopicReplaced ends the process; the next start writes a gap with its
//	 us                                       first heartbeat. A log that is gone is refused: see below
//	somebody adds partitions                  they are left alone, with a warning
//	a stray write into our topics             stepped over, with a warning and a metric
//	what looks like an event of ours above    ErrForeignTail, by name: it would hide what is really deleted below it
//	 the log's end, and the stream has not
//	the publisher must be opened anew         the whole start again, from the tails
//	another auditor starts                    it waits for the slot; if it gets it, it fences this one, which ends
//	slot without its log, log behind slot     *RefusalError: nothing is published, nothing confirmed
//	the database is a copy, or was restored   *BentError: nothing is published or confirmed, Ready says it, and the check is
//	                                          made again until a person has said lapse history accept
//	a standby was promoted                    goes on; a rewind where it lacked what was published, if that is little
//	somebody changes the publications         a gap from the last heartbeat that was right; not ready while it lasts
//	heartbeats do not come back               not ready: they are not published, or there is much to catch up with
//	the slot is dropped, or lost              replication's error: lapse init --new-slot; a gap in the same topics
//	topic of another database                 *RefusalError
//	topics, partitions, slot or hash key      *RefusalError: a log has one route so far
//	 changed
//	a log topic that deletes or compacts      *kafka.RetentionError, at the start and within an hour of a change, if its
//	                                          settings may be read
//	a row whose keys are huge                 its long values are hashed; the event says which
//	a transaction with thousands of tables    its record names 512 of them and sums up the rest; the events name all
//	REPLICA IDENTITY FULL                     events without values, identity: full, and a warning per table: what the
//	                                          server sends is the row
//	a key of generated columns, which         events without keys, identity: none, and a warning per table. Of a key that
//	 the server does not send (before 18)     is generated in part they have the rest: the server does not say so
//	a change that cannot be decoded           the process ends: nothing is ever skipped
//	a record larger than a topic takes        the same. An event is below 256 KiB, a record of the log below 600 KiB, so
//	                                          max.message.bytes of that much is enough; the default is 1 MiB
//	a batch that the deletion functions       Config.Alarm, before the transaction's record: every deletion in the database
//	 wrote, row and result, fits no tag key    stops until a person has looked (an executor with another key, or somebody
//	                                          with its login) and says lapse resume --all; its rows are unverified
//	deletion cannot be stopped for it         the stream is opened again and it is tried again, for ever: nothing behind it
//	                                          is recorded or confirmed, Ready is an error, and the executor stops by itself
//	                                          when a batch has not been confirmed for a minute
//	a heartbeat that cannot be written        a warning, and not ready after two; the executor deletes nothing without
//
// What passes by itself is tried again for ever; what does not is Run's error.
//
// # What it does not do yet
//
// An update that moves a row to another partition arrives as a delete, and is published as a user's delete: inserts are
// not published.
package audit
