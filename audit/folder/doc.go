// Package folder keeps topics as files of this machine, with the promises that audit/kafka makes for brokers: exactly one copy of each
// record, despite crashes of this process and of the machine. It is for one machine and one publisher; there are no consumers elsewhere.
//
// # What it promises
//
// A record that Append has taken is in its partition once when Acked reaches its number, after all records that were appended for that
// partition before it, and durable: its file was synced, and so was each folder that names a new file. A record that is not acknowledged
// when the process ends may be there or not. The next start reads the tails and continues there: see "After a restart" in audit/kafka,
// which applies here word for word.
//
// # What is in the folder
//
//	sink.json                         the folder's id, which its copies share
//	lock                              held by the publisher, as long as it lives
//	topics/TOPIC/PARTITION/BASE.seg   records from the offset BASE on: frame.go, segment.go
//	tree/                             the log's tree, as audit/tree publishes it: made from the log, and can be made again
//
// A partition's offsets have no gaps. Only its last segment grows; each names the one before it and that one's length.
//
// # The life of a publisher
//
//	place ─▶ lock ─▶ segments: chain, end ─▶ fences ─▶ tails ─▶ open ─▶ closed
//
//	Append ─▶ waiting records, a buffer for each partition ─▶ write ─▶ sync, all partitions side by side ─▶ Acked
//	                                     ▲ the next round, as long as records wait
//
// A fence is a record with header lapse-op: fence, as in Kafka. It fences no one, since the lock does that, but it gives each publisher's
// records an epoch of their own, so that the log can tell a lost record from another one at its offset.
//
// # When something fails
//
//	what fails                            what follows
//	the process dies within a record      the next one cuts off the incomplete record, which was never acknowledged
//	the process dies after a write        whole records are kept, and synced before they are acknowledged
//	the machine dies                      the same, for what the disk has
//	no room                               a half written record is cut off, and written again each second; Append returns false when the buffer is
//	                                      full; Stalled grows, Awaits says why; nothing is lost
//	sync fails                            ErrNotDurable: the publisher ends, and the file is not synced again: the system has forgotten what it
//	                                      could not write. The next start drops what the system remembers, and reads the disk
//	another publisher                     ErrLocked
//	somebody else writes into a segment,  ErrReplaced before the next write: its length, or the file that has its name, is another
//	 deletes or replaces it
//	a segment is gone, cut or foreign     *CorruptError at the next start; a log that lost its beginning too
//	a byte of a segment is another        *CorruptError when it is read; at the end of the last segment it looks like a half written record, and
//	                                      is cut off: the history check finds then that the log, or a topic, ends too early
//	an older copy of the folder is put    the same: a log that ends before the slot is refused by the history check
//	 back
//	two copies of the folder go on        not detected here: the logs fork, which only somebody with checkpoints of both can see
//	others may use the folder             *PlaceError: it contains who was deleted, and a writer there could write the log
//	links, mounts, file systems of        *PlaceError
//	 other machines
//	the tree cannot be written            a warning, and another try each minute; the log has everything
//
// # Reading
//
// Client and its readers need no lock. They see written records before they are synced. In the last segment, a reader takes the first
// incomplete record for the end.
//
// # Where to add
//
//	a check of the place             place.go, system_linux.go
//	a file of the folder             place.go: its name; doc.go
//	another encoding of a record     frame.go, and format in place.go
package folder
