// Package kafka puts exactly one copy of each record into its topic, whatever dies. It knows nothing of Postgres.
//
// # What it promises
//
// A record that Append has taken is in its partition once when Acked reaches its mark, behind all records that were
// appended for that partition before it, and acknowledged by all replicas in sync. That holds over lost requests, lost
// answers, brokers that die and leaders that move.
//
// Over the death of this process it holds together with the caller. Open says for each partition which record is the
// last one there (Last), and from then on nothing of a former publisher can come in. The caller sends again what is above
// that record and nothing of what is not. It needs a source that can be read again in the same order: the slot.
//
// # How
//
//	         Open                                                                       Close
//	connect ─▶ topics ─▶ session ─▶ fences ─▶ tails ─▶ open ──────────────────────────▶ closed
//	                                                    │ ErrFenced, ErrRestart, ErrTooLarge, ErrTopicReplaced, …
//	                                                    └─▶ ended: only Close is left, and another Open
//
// The broker's own machinery for idempotent producers does the work: each batch carries producer, epoch and sequence
// number, and a partition's leader appends a batch only if it follows the one before. kafka-go's writer cannot send
// these, so the package encodes its batches itself. The producer belongs to a transactional id, which is what makes
// epochs grow from one publisher to the next; Kafka's transactions are not used.
//
//   - One batch is under way in each partition. It is sent again, the same bytes, until the answer is here.
//   - A fence is a record with header lapse-op: fence, in every partition, sent under the epoch of this publisher. A
//     leader accepts an older epoch until it has seen a newer one, and not after. So what lies below the fence is final,
//     and there is the tail to be read.
//   - A broker forgets a producer (producer.id.expiration.ms, a day) and then takes any batch of it. It goes by the
//     timestamps of the records, and ours are the times of commits, which after an outage may be days old: tried on
//     Kafka 4.3.1, a batch of old records was appended a second time, and so was one of a former epoch. So a batch whose
//     records are all older than an hour ends with one more fence, of now; a batch without answer is not sent again
//     after an hour; and nothing is sent when the session was not renewed for 18 hours.
//   - The coordinator forgets a transactional id seven days after it was last asked for it, and gives the next publisher
//     another producer, whose fences fence nobody. So the session is renewed every six hours, under its own name: a
//     publisher that was taken over learns it then at the latest.
//
// It does not work with producer.id.expiration.ms below a day or transactional.id.expiration.ms below a week, their
// defaults.
//
// # What fails, and what comes of it
//
//	what fails                              what comes of it
//	broker dies before the append           the batch is sent to it or its successor until it is there
//	broker dies after the append            its successor, or itself from its log, knows the sequence: no second copy
//	request or answer lost, connection cut  the same bytes again; appended once
//	leader moves, too few replicas          the same; Stalled tells for how long
//	all brokers away                        Append says no when the buffer is full; Stalled grows; nothing is lost
//	… for more than an hour                 ErrRestart: Open waits for the brokers, and the tail tells what is there
//	this process dies                       the slot sends again, the tails say what is there already
//	two publishers run                      the one opened first gets ErrFenced with its next batch in a fenced partition
//	a paused one wakes up                   the same; after 18 hours it does not even send
//	the broker has lost or forgotten state  ErrRestart (45, 59): new epoch, fences, tails
//	a record is too large                   ErrTooLarge, and nothing behind it is published: none is ever left out
//	ACL, clock, topic settings              an error that says what to do
//	the topic is deleted and made again     ErrTopicReplaced, with the next batch or within a minute. The broker takes the
//	                                        batch as if nothing had happened; its place tells (replaced.go). What was in
//	                                        the topic is gone, and the next Open's Last finds nothing
//	the topic is deleted                    ErrTopicReplaced within two minutes; nobody but Open makes it again
//	acknowledged records are lost           ErrTopicReplaced as well, unless as many others have taken their place: unclean
//	                                        leader election, or fewer than two replicas in sync when a disk dies
//	somebody else writes into the topic     Open steps over what is behind the last record of ours; a warning, and a metric
//	somebody adds partitions                nothing is published there; a warning
//	somebody sets a topic to lose records   RetentionError, within an hour
//	somebody takes replicas away            a warning each hour, and Warnings
//	retention deletes the tail              Last finds nothing: what the caller has not confirmed is published again, though
//	                                        a consumer may have read the deleted copy
//	the 32767th epoch                       the broker gives another producer; a publisher of before is not fenced by it
//
// # Refusals
//
// A topic with fewer partitions than configured, because keys would move. A topic of events that is compacted, and one that
// must keep its records for ever and is set not to, as far as the settings may be read (RetentionError); Open looks, and so
// does the publisher each hour. A record without time.
//
// # Errors
//
// No error of kafka-go's leaves the package: it says of itself that it is a net.Error, and whoever grades by that takes
// "fenced" for a broken connection and fences back. A broker's refusal is a *BrokerError. Terminal tells what to end for.
//
// # Reading
//
// Client and Reader serve whoever reads the topics back: tails, lapse events, lapse verify. Client.Tail and Backward look at
// the end of a topic before anybody is fenced.
package kafka
