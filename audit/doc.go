// Package audit publishes what was deleted, says who did it, and keeps the log that proves it. It trusts only the write-ahead log.
//
// # What it promises
//
// Every row that a committed transaction deletes from a published table is in its topic once, whatever crashes. Its event is in one partition,
// chosen by its key, after every event of earlier transactions. System deletes are in one topic; user and unverified deletes are in another. A
// partition that a policy drops is one event in each partition of the first topic, a truncated table one in each of the second. Every
// transaction with events, or with a ledger row that the log keeps, has a record in the log, after its events and before the slot advances.
//
// The same WAL gives the same bytes whenever it is read with the same keys and routes: package evidence alone decides what an event says and where
// it goes. Each route of a log is in force from the position of its record on, and one route applies to a whole transaction, even if a process
// with another format, number of partitions or hash key starts meanwhile.
//
// The auditor's whole state is the slot and the topics. It can be killed, moved and started anywhere.
//
// # One row, in the order of the files
//
//	evidence/           a transaction's changes become events and records: the pure part, see its doc.go
//	relay.go            from the stream to the sink
//	publish.go          events, without what is there already
//	sink.go             where events and records go: into the topics (audit/kafka, or audit/folder without brokers), or into a file (eventfile.go)
//	commit.go           the end of a transaction; alarm.go stops every deletion if it must
//	flush.go            records into the log, positions to the slot; coverage.go: nothing was deleted
//	ends.go             where the topics end, in the log before each record about them
//
// and around it:
//
//	auditor.go          Run: retries, or gives up; errors.go grades errors
//	takeover.go         the order of a start; session.go is what runs until the next one
//	history/            does the log belong to this database, and where does a start continue? See its doc.go
//	start.go            what a start must write first
//	rows/               commitments to single rows, and what receipts are made of; rows.go hands it the events
//	tree/               the log's Merkle tree, its checkpoints and its export: see its doc.go; checkpoint.go signs it
//	verify/, export/    whether each record is there once; an export of the topics, and how it is verified, for lapse events, verify, prove and report
//	database.go         its calls over a connection for SQL: beat, doubt, alarm, probe
//	heartbeat.go        heartbeats, and whether they come back; probe.go and lag.go whether the server is read
//
// # Order of durability
//
//	events appended ─▶ acknowledged ─▶ records in the log ─▶ acknowledged ─▶ end LSN confirmed to the slot
//
// A transaction may have several records. Its end counts as reached, and is confirmed, with the last of them. Transactions pass through these steps
// one after the other without waiting for each other. A position without events is confirmed by a coverage record: each half minute while the
// position moves, and within about a second if a server, an arming policy or a heartbeat waits for it.
//
// # Order of a start
//
//	      ┌──────── pause ◀── stream breaks, slot in use, PostgreSQL away, the brokers have forgotten us ───────┐
//	      ▼                                                                                                     │
//	START_REPLICATION ─▶ check ─▶ InitProducerID ─▶ fences ─▶ tails ─▶ origin, route, gap, rewind ─▶ streaming ─┤
//	the slot is ours     package  ours is the newer epoch,    those that              as needed                 │
//	                     history  in every partition          were checked                      ctx ends, end reached
//	                                                                                            drain ─▶ confirm ─▶ close
//
// # Histories
//
// The history check (package history) decides whether the log belongs to this database, before another auditor is fenced, and whenever the stream is
// opened again. It compares the history's number and nonce, the timelines that the server left, the log's last heartbeat, and then, transaction by
// transaction, what the slot sends again.
//
// A heartbeat (heartbeat.go) is a row that the auditor writes into the database and reads back. It names the heartbeat before it, so that a
// missing one is noticed, and the server that it was written on, which tells copies apart. The deletion functions require a recent one.
//
// A gap and a rewind (evidence/marker.go) are events of their own, in every partition, at positions that no change can have.
//
// # When something fails
//
//	what fails                                what follows
//	the auditor dies, anywhere                the slot sends again; log and tails say what is there: commit in commit.go
//	the stream breaks                         the whole start again, after a pause, with the history check
//	PostgreSQL dies, and forgets what was     what it sends again ends below the log's end and is dropped
//	 confirmed
//	PostgreSQL is stopped (fast)              it asks for what is confirmed and gets a coverage record at once; if Kafka
//	                                          does not answer, or there is too much to read, it is left after two or
//	                                          three seconds: the slot keeps everything
//	Kafka is away                             nothing is lost and nothing confirmed: the slot does not move and PostgreSQL keeps
//	                                          its WAL (max_slot_wal_keep_size bounds it, and then the slot is lost); what
//	                                          fits into the buffer is read, then reading stops; Ready is an error, and
//	                                          /readyz 503, once something has waited for five seconds; deletion stops
//	                                          when a batch has not been confirmed for a minute (executor/guard/confirmed.go)
//	the folder that keeps the topics has no   as if Kafka were away; it continues by itself when there is room. Other failures of a folder
//	 room                                     are in audit/folder's table
//	a topic is deleted, or made again, under  kafka.ErrTopicReplaced ends the process; the next start finds it as the next line
//	 us                                       says. A log that is gone is refused: see below
//	a topic is deleted, or brokers lose the   each start compares the topics with the ends that the log has, and writes a gap with its
//	 end of a partition, at any time          first heartbeat. What the log had no record of the slot sends again
//	brokers lose the log's end                what was not confirmed the slot sends again; else the log is behind the slot: see below
//	somebody adds partitions                  they are left alone, with a warning
//	a stray write into our topics             stepped over, with a warning and a metric
//	a tail above the log's end that the       *history.RefusalError: it would hide what is really deleted below it
//	 database never wrote
//	the publisher must be opened again         the whole start again, from the tails
//	another auditor starts                    it waits for the slot, ready, while this one writes heartbeats (standby.go); if it
//	                                          gets it, it fences this one, which ends
//	slot without its log, log behind slot     *history.RefusalError: nothing is published, nothing confirmed
//	the database is a copy, or was restored   nothing is published or confirmed, Ready says it, and the check is made again
//	                                          until a person has run lapse history accept
//	a standby was promoted                    goes on, with a rewind if it lacked what was published and that is little
//	a table joins, leaves, is renamed,        the next heartbeat finds it and the log says it. Before 15 the server may go on as
//	 attached or detached                     before, so the stream is opened again: reopenStale in relay.go
//	somebody changes the publications         a gap from the last heartbeat that was right; not ready while it lasts
//	heartbeats do not come back               not ready: they are not published, or there is much to catch up with
//	the slot is dropped, or lost              replication's error: lapse init --new-slot; a gap in the same topics
//	topic of another database                 *history.RefusalError
//	format, partitions or hash key changed    another route, from a position above which nothing has been routed: follow in
//	                                          start.go. The former route finishes what is half in the topics
//	topics or slot changed                    *history.RefusalError
//	the former route's hash key is gone       *history.RefusalError while a transaction is half in the topics; else nothing
//	a topic with fewer partitions than the    the start fails, with the line that adds them
//	 configuration says
//	somebody forges the record of a route     *history.RefusalError with its place: the events published by it could not be verified
//	a transaction of a month that the file  the process ends, before anything of it is published: lapse keys rotate. Nothing is
//	 of the key named rows has no key of      published that is not committed to
//	another key of a month than the log has *history.RefusalError: another file of keys
//	a log whose last record is not of our  *history.RefusalError: another key named log, another log_name, or somebody else's
//	 key                                      record
//	a log topic that deletes or compacts      *kafka.RetentionError, at the start and within an hour of a change, if its
//	                                          settings may be read
//	a row whose keys are huge                 its long values are hashed; the event says which
//	a transaction with thousands of tables    several records, of 256 tables each at most: evidence.LogWriter
//	REPLICA IDENTITY FULL                     events without values, identity: full, and a warning per table: what the
//	                                          server sends is the row
//	a key of generated columns, which         events without keys, identity: none, and a warning per table. Of a key that
//	 the server does not send (before 18)     is generated in part they have the rest: the server does not say so
//	a change that cannot be decoded           the process ends: nothing is ever skipped
//	a record larger than a topic takes        the same. An event is below 256 KiB, a record of the log below 600 KiB, so
//	                                          max.message.bytes of that much is enough, and a topic with less is warned of at
//	                                          each start; the default is 1 MiB
//	a batch, or a drop, that the functions    Database.Alarm, before the transaction's record: every deletion in the database
//	 wrote, row and result, fits no tag key    stops until a person has acted (an executor with another key, or somebody
//	                                          with its login) and says lapse resume --all; its rows are unverified
//	deletion cannot be stopped for it         the stream is opened again and the stop is tried again, forever: nothing after
//	                                          the batch is recorded or confirmed, Ready is an error, and the executor stops by itself
//	                                          when a batch has not been confirmed for a minute
//	a heartbeat that cannot be written        a warning, and not ready after two; the executor deletes nothing without
//
// Run retries errors that go away by themselves forever, and returns any other error.
//
// # Where to add
//
//	another kind of record or event     evidence (an assembler's outcome); the relay carries any number of them
//	another sink                        a file with its Sink, and where cmd/lapse asks for the folder; what has a log is a publisher, opened by
//	                                    takeTopics (sink.go), and read through a store.Client
//	another reason not to go on         see history/doc.go
//	another reason not to be ready      Ready in auditor.go
//
// # A copy of the events
//
// Copy lets the relay write the same events into a file, from a temporary copy of the slot, and confirms nothing to the slot itself.
// Records of the log are made, and dropped at the sink: see eventfile.go, which also says what a crash leaves of the file.
package audit
