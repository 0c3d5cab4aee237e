// Package replication reads committed changes from a PostgreSQL logical slot: publication, slot, stream, decoding,
// positions. It knows nothing of policies or of Kafka, and is of use without the rest of Lapse.
//
// # What it promises
//
//   - Every committed change of a published table above the slot's position, in commit order, whole transactions only,
//     each at a Position that is the same however often it is sent.
//   - A change may come again: after a crash, here or there, the slot goes back to a position that was confirmed before.
//     Positions tell; nothing else does.
//   - The slot moves only over what the caller has confirmed. No status carries any other position, and none beyond
//     what this server has sent on this stream.
//   - A transaction of any size passes through in constant memory, and so does a row of any size. Values of more than 1 MiB
//     are buffered only where somebody wants them (keys, and rows of schema lapse), up to 16 MiB; of other rows the change
//     is delivered, and the values are thrown away as they come.
//   - A server that shuts down learns nothing from us that is not durable, and is not kept waiting: the caller is told.
//   - A server that says nothing is asked, each ten seconds, and given up after a minute without an answer.
//
// # What it refuses
//
// To skip anything. What cannot be decoded, a publication that is missing, a slot that was lost: each ends the stream
// with an error that says so (see GradeOf: Stop). To make a slot by itself: CreateSlot is for whoever sets up. To publish
// a table whose own deletes would then fail (CheckIdentity). To read from a standby. To show a row's values in an error
// or a log.
//
// # Order
//
//	EnsurePublications → CreateSlot → Join each table        once; publications first, or the slot is stuck for good
//	Open                                                     the slot is ours: one stream at a time, the slot is the mutex
//	  Next … KindBegin, KindChange …, KindCommit             and KindKeepalive at any place
//	  everything of the transaction made durable
//	  Confirm(tx.EndLSN)                                     sent with the next status, or now with Flush
//	Close                                                    the slot is free
//
// A keepalive's WALEnd may be confirmed when no transaction is open (Message.Open) and everything before it is durable:
// that is how the slot moves over what is not published.
//
// # Keepalives and shutdown
//
// A server that is told to stop sends all that it has, and then waits until everything is confirmed. It asks for an
// answer, and asks again as soon as it has one; no other sign is given. Next answers (at most every 20 ms) with the
// confirmed position, and sets Message.Pressing when it was asked twice within 100 ms. The caller either makes WALEnd
// durable and confirms it, or closes. While nothing can be taken from the stream, Wait stands in for Next: it reads
// ahead a little to see the same sign, and if more than that lies before it, looks from outside whether the server still
// takes connections. It returns ErrPressing. A server in the middle of a transaction asks for nothing before it has sent
// the rest: in one that has been open for more than a second the look from outside runs each second, in Next too, and
// Stream.Stopping says what it has found.
//
// A server that reads a transaction of which it sends nothing is silent for half of wal_sender_timeout. Open sees to it
// that this is 20 s at most.
//
// # When something fails
//
//	what                                    what the caller sees             what is left
//	we die at any moment                    –                                the slot, at the last status; sent again from there
//	the connection breaks                   error, Retry                     the same
//	the server is frozen, or cut off        ErrSilent, Retry                 the same
//	the stream would be a sync standby      ErrSynchronous, Retry            nothing changed
//	the server stops in order               errServerStopped, Retry          the same, exactly where it was confirmed
//	the server crashes                      error, Retry                     the slot may be further back than what was confirmed
//	another stream has the slot             ErrSlotActive, Retry             nothing changed
//	the slot was dropped                    errSlotMissing, Stop             a gap: deletions that nobody saw
//	the server gave up the slot             ErrSlotLost, Stop                a gap
//	a publication is missing                errPublicationMissing, Stop      the slot, before the first change that it lacks
//	a message is not understood             *decodeError, Stop               the slot, before it
//	a row whose text has more than 1 GB     SQLSTATE XX000 or 54000, Stop    the slot, before it: see docs/limits.md
//	a promotion                             error, Retry                     the slot, if it is a failover slot; Tx.Timeline tells
//	the context ends                        its error                        the stream, whole
//
// # Speed
//
// The decoder works in place: no allocation per row. The server makes a send per row, so what decides is how rarely the
// reader is woken: reads are large, and nothing is done per message that could be done per read.
package replication
