// Package folder keeps topics as files of this machine, with what audit/kafka promises of brokers: exactly one copy of each record, over
// crashes of this process and of the machine. It is for one machine and one publisher; nobody consumes elsewhere.
//
// # What it promises
//
// A record that Append has taken is in its partition once when Acked reaches its number, after all records that were appended for that
// partition before it, and the disk has it: its file was synced, and so was each folder that names a new file. What is not acknowledged
// may be there or not when the process has ended. The next start reads the tails and goes on there: see "After a restart" in
// audit/kafka, and each word of that holds here.
//
// # What is in the folder
//
//	sink.json                         which folder this is: its copies say the same
//	lock                              held by the publisher, as long as it lives
//	topics/TOPIC/PARTITION/BASE.seg   records from the offset BASE on: frame.go, segment.go
//	tree/                             the log's tree, as audit/tree publishes it: made of the log, and can be made again
//
// A partition's offsets have no gaps. Only its last segment grows; each names the one before it and that one's length.
//
// # The life of a publisher
//
//	place ─▶ lock ─▶ segments: chain, end ─▶ fences ─▶ tails ─▶ open ─▶ closed
//
//	Append ─▶ what waits, a buffer for each partition ─▶ write ─▶ sync, all partitions side by side ─▶ Acked
//	                                     ▲ the next round, as long as something waits
//
// A fence is a record with header lapse-op: fence, as in Kafka. It fences nobody, since the lock does, but gives each publisher's records
// an epoch of their own: so the log can tell a lost record from another one with its offset.
//
// # What fails, and what comes of it
//
//	what fails                            what comes of it
//	the process dies within a record      the next one cuts off what is not whole; nobody was told that it is there
//	the process dies after a write        what is whole is kept, and synced before anybody is told
//	the machine dies                      the same, of what the disk has
//	no room                               what was half written is cut off, and tried again each second; Append returns false when the buffer is
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
//	two copies of the folder go on        nothing here finds that: the logs fork, and only who has checkpoints of both sees it
//	others may use the folder             *PlaceError: it says who was deleted, and who may write there may write the log
//	links, mounts, file systems of        *PlaceError
//	 other machines
//	the tree cannot be written            a warning, and another try each minute; the log has everything
//
// # Reading
//
// Client and its readers need no lock. They see what is written and not yet synced. A reader takes the last segment's first record that is
// not whole for the end.
//
// # Where to add
//
//	a check of the place             place.go, system_linux.go
//	a file of the folder             place.go: its name; doc.go
//	another encoding of a record     frame.go, and format in place.go
package folder
