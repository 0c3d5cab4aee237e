// Package kafka puts exactly one copy of each record into its topic, despite crashes of this process and of the brokers. It knows
// nothing about PostgreSQL.
//
// # What it promises
//
// A record that Append has taken is in its partition once when Acked reaches its number. It comes after all records that
// were appended for that partition before it, and all replicas in sync have it. Lost requests, lost answers, brokers that
// die and leaders that move do not change that.
//
// If this process dies, the promise needs the caller's help: see "After a restart".
//
// # The life of a publisher
//
//	         Open                                                                       Close
//	connect ─▶ topics ─▶ session ─▶ fences ─▶ tails ─▶ open ──────────────────────────▶ closed
//	                                                    │ ErrFenced, ErrRestart, ErrTooLarge, ErrTopicReplaced, …
//	                                                    └─▶ ended: only Close is left, and another Open
//
// Inside an open publisher:
//
//	Append ─▶ a sender for each partition: queue of batches ─▶ the one batch under way ─▶ its leader
//	                                                              ▲ the same bytes, until the answer arrives
//	Acked  ◀─ the smallest number that no sender has unacknowledged, less one ◀─ answers of the leaders
//
// # How
//
// The brokers' own support for idempotent producers does the work. Each batch carries producer, epoch and sequence number,
// and a partition's leader appends a batch only if it follows the one before. kafka-go's writer cannot send these, so the
// package encodes its batches itself. The producer belongs to a transactional id, so each publisher gets a higher epoch
// than the one before. Kafka's transactions are not used.
//
//   - One batch at a time is under way in each partition. It is compressed and sealed once, and the sender sends the same
//     bytes until the answer arrives.
//   - A batch that is not full waits until 5 ms have passed since the one before was sent (linger). So a busy partition gets
//     fewer, larger requests, and a record in a quiet one waits for nothing.
//   - A fence is a record with header lapse-op: fence, in every partition, sent under the epoch of this publisher. A
//     leader accepts an older epoch until it has seen a newer one, and not after. So what lies below the fence is final.
//   - A broker forgets a producer (producer.id.expiration.ms, a day) and then accepts any batch of it. It counts from the
//     timestamps of the records. Ours are the times of commits, which may be days old after an outage. Tried on Kafka
//     4.3.1: a batch of old records was appended a second time, and so was one of a former epoch. So a batch whose records
//     are all older than an hour ends with one more fence, with the time of now; a batch without answer is not sent again
//     after an hour; and a session that was not renewed for 18 hours sends nothing.
//   - The coordinator forgets a transactional id seven days after the last request for it. So the session is renewed every
//     six hours, under its own epoch. A publisher that was replaced learns of it then at the latest.
//   - A coordinator that nevertheless forgot, or lost its state, gives another producer, or an epoch that was used before. So Open
//     also asks the partitions who wrote last: see former.go.
//
// It does not work with producer.id.expiration.ms below a day or transactional.id.expiration.ms below a week, their
// defaults.
//
// # After a restart
//
// A record whose answer was lost with the process is in the topic or not. The tail shows which:
//
//	partition   … 41  42  43  F  44   45  x  F'│ 46 …
//	                          │       │      └ this publisher's fence: below it nothing changes any more
//	                          │       └ Last: 45, the newest record of ours; x is foreign and skipped
//	                          └ the former publisher's fence
//
// Open fences first and reads then, so the tail cannot be out of date. The caller needs a source that can be read again in
// the same order, which the replication slot is. It reads the source again from its last confirmed position, drops each
// record that is at or below the newest of its partition's tail, and appends the others. What was sent before 45 is in the
// partition too, since one sender sends in order.
//
// Topic.Tail asks for more than the newest record, for a caller that rebuilds or compares the end of a topic. Last returns these records oldest
// first, with their offsets, within 1 MiB of memory for each partition.
//
//	the partition has fewer of ours     Last has these
//	retention has deleted the tail      Last is empty, or begins later
//	compaction has removed some         Last has what is left; the offsets have gaps
//	nothing but fences and others'      Last is empty
//	the tail takes more than 1 MiB      Last has the newest that fit, and at least one; Client.Backward reads on
//
// # When something fails
//
//	what fails                              what follows
//	broker dies before the append           the batch is sent to it or its successor until it is appended
//	broker dies after the append            its successor, or itself from its log, knows the sequence: no second copy
//	request or answer lost, connection cut  the same bytes again; appended once
//	leader moves, too few replicas          the same; Stalled tells for how long
//	all brokers away                        Append returns false when the buffer is full; Stalled grows; nothing is lost
//	… for more than an hour                 ErrRestart: Open waits for the brokers, and reads the tails
//	this process dies                       the caller reads its source again, and compares it with the tails
//	two publishers run                      the one opened first gets ErrFenced with its next batch in a fenced partition
//	a paused publisher continues            the same; after 18 hours it does not even send
//	the broker has lost or forgotten state  ErrRestart (45, 59): new epoch, fences, tails
//	a record is too large                   ErrTooLarge, and nothing after it is published: no record is left out
//	the login is refused                    it is tried again, since a broker that stops during a login looks the same; the
//	                                        log and Open's error say what to check
//	ACL, clock, topic settings              an error that says what to do
//	the topic is deleted and made again     ErrTopicReplaced, with the next batch or within a minute. The broker accepts the
//	                                        batch as if nothing had happened; its offset tells (replaced.go). The records of
//	                                        the topic are gone, and Last is empty after the next Open
//	the topic is deleted                    ErrTopicReplaced within two minutes; only Open makes it again
//	acknowledged records are lost           ErrRestart with the next batch (45), or ErrTopicReplaced: unclean leader election, or
//	                                        fewer than two replicas in sync when a disk dies. A caller that has kept the Ends
//	                                        asks Client.Has before it opens another publisher
//	somebody else writes into the topic     Open skips records after the newest of ours; a warning, and a metric
//	somebody adds partitions                nothing is published there; a warning
//	somebody sets a topic to lose records   RetentionError, within an hour
//	somebody takes replicas away            a warning each hour
//	retention deletes the tail              Last is empty: the caller publishes again what it has not confirmed, though a
//	                                        consumer may have read the deleted copy
//	the 32767th epoch                       the broker gives another producer; a renewal that gets one is ErrRestart
//	the coordinator's state is lost         Open fences former publishers by what the partitions know of them
//
// # Refusals
//
// Open refuses a topic with fewer partitions than configured, because only its owner should add some; a topic with fewer copies than
// configured, or with a lower min.insync.replicas (UnsafeError); a topic of events that is compacted, and a topic that must keep its
// records forever but has other settings, as far as the settings may be read (RetentionError); and one that does not accept the largest
// record (SizeError). The publisher repeats these checks each hour. Append refuses a record without time.
//
// A record whose time is a minute ahead of our clock is published as of now: brokers refuse what is an hour ahead of theirs.
//
// # Errors
//
// A text begins with what was being done and to which topic or partition. No error of kafka-go leaves the package: those are net.Errors, and a caller
// that grades by that would take "fenced" for a broken connection and fence back. Terminal says which errors another Open would not fix. gradeOf
// decides what is retried.
//
// # Reading
//
// Client and Reader read topics back: for the check of a log, lapse events and lapse verify. Client.Backward reads the end of a topic before it is
// fenced.
//
// # Where to add
//
//	a check of the topics while publishing    watch.go
//	a setting that a topic must have          settings.go: checkRetention, safetyWarnings
//	another compression                       compression.go
//	advice for a broker's error               errors.go: advice, and gradeOf if it passes
//	another way to read the end of a topic    tail.go, on windows
package kafka
