// Package replication reads committed changes from a PostgreSQL logical slot: publication, slot, stream, decoding, positions. It knows nothing
// about policies or Kafka, and can be used without the rest of Lapse: see the example of Open.
//
// # What it promises
//
//   - Every committed change of a published table above the slot's position, in commit order, whole transactions only,
//     each at a Position that is the same however often it is sent.
//   - A change may come again. After a crash of either side the slot goes back to a position that was confirmed before.
//     Only a Position tells whether a change was seen before.
//   - The slot advances only over what the caller has confirmed. No status contains any other position, and none beyond
//     what this server has sent on this stream.
//   - A transaction of any size needs constant memory, and so does a row of any size. Values of more than 1 MiB are buffered
//     only if they are needed (keys, rows of schema lapse, updates, and an insert directly after a delete from another
//     table, which may be a row that moved), up to 16 MiB. The change of any other row is delivered without values.
//   - A server that shuts down gets no position that is not durable, and does not have to wait: the caller is told.
//   - A silent server is asked for an answer every ten seconds, and given up after a minute without one.
//   - Wake, and the end of a context, interrupt a call at once and lose nothing.
//
// # What it refuses
//
// To skip anything: a message that cannot be decoded, a missing publication, a lost slot each end the stream with an error that says so (see
// GradeOf: Stop). To make a slot by itself: EnsureSlot is for setup. To publish a table whose own deletes would then fail (CheckIdentity). To read
// from a standby. To show a row's values in an error or a log.
//
// # Order
//
//	EnsurePublications → EnsureSlot → Join each table        once; publications first, or the slot is stuck for good
//	Open                                                     the slot is ours: one stream at a time
//	  Next … KindBegin, KindChange …, KindCommit             and KindKeepalive at any place
//	  everything of the transaction made durable
//	  Confirm(tx.EndLSN)                                     sent with the next status
//	Close                                                    the slot is free
//
// A keepalive's WALEnd may be confirmed if no transaction is open (Message.Open) and everything before it is durable. In this way the slot
// advances over what is not published.
//
// # States of a stream
//
//	             Next: KindBegin                Next: KindCommit
//	  between ───────────────────▶ transaction ───────────────────▶ between
//	     │                              │
//	     │  Wait, During: reads ahead, delivers nothing, state stays
//	     │                              │
//	     └──── any error but those below┴──▶ failed: each call returns the first error again
//
//	ErrWoken, ErrStopping and the context's error leave the state as it is.
//
// # One goroutine, two things to wait for
//
// A stream belongs to one goroutine, which often waits for something else too: acknowledgements, a deadline. To end that wait, call Wake, from any
// goroutine: the waiting Next or Wait, or the next one, returns ErrWoken. Several unread wakes count as one, so check everything after one. While
// nothing can be taken from the stream, call Wait, or During with the work itself: both keep answering the server.
//
// # Patience
//
// All times are in patience.go. A server that is told to stop sends everything that it has, and then waits until all of it is confirmed. It asks for
// an answer, and asks again as soon as it has one; it gives no other sign.
//
//	the server                                  who notices                        what happens
//	asks twice within 100 ms                    Next: Message.Stopping             answered each 20 ms with the confirmed position
//	the same, while nothing can be taken        Wait: ErrStopping, each 250 ms     the same; Wait reads 1 MiB ahead to see it
//	cannot even ask: more than that lies ahead  Wait: ErrStopping                  a connection beside the stream, each second, is refused
//	shuts down in a transaction that is open    Next and Wait, each 250 ms         the same, in transactions open for more than a second
//	for more than a second
//
//	the caller, when it is told                 calls CheckStop                    nil: go on; an error of grade Retry: Close
//	  the stop was seen beside the stream, and  error at once                      the rest of the transaction may take any time
//	  a transaction is open
//	  what the caller waits for has not moved  error after 2 s (StalledAtMost)    it will not move in time
//	  anything else                             error after 3 s                    no server is kept waiting for longer
//	During                                      asks by itself                     cancels its work after 2 s, returns the error
//	Close                                                                          waits a second for the server's end of copy
//
// A sign older than 10 s had another cause: a busy server asks twice now and then.
//
// A silent server is asked every 10 s (Stream.Idle) and given up after a minute. A server that reads a transaction and sends nothing of it answers
// when half of wal_sender_timeout has passed; Open makes sure that this is at most 20 s.
//
// # When something fails
//
//	what                                    what the caller sees             what is left
//	we die at any moment                    –                                the slot, at the last status; sent again from there
//	the connection breaks                   error, Retry                     the same
//	the server is frozen, or cut off        error, Retry                     the same
//	the stream would be a sync standby      ErrSynchronous, Retry            nothing changed
//	the server stops in order               error, Retry                     the same, exactly where it was confirmed
//	the server waits for us to stop         ErrStopping; CheckStop, Retry    the stream, whole, until the caller closes it
//	the server crashes                      error, Retry                     the slot may be further back than what was confirmed
//	another stream has the slot             ErrSlotActive, Retry             nothing changed; a copy of it can be read (Copy)
//	the slot was dropped                    *SlotError, Stop                 a gap: deletions that no stream has sent
//	the server gave up the slot             ErrSlotLost, Stop                a gap
//	a publication is missing                *PublicationError, Stop          the slot, before the first change that it lacks
//	a message is not understood             error, Stop                      the slot, before it
//	a row whose text has more than 1 GB     SQLSTATE XX000 or 54000, Stop    the slot, before it: see docs/limits.md
//	a promotion                             error, Retry                     the slot, if it is a failover slot; Tx.Timeline tells
//	no server is a primary for the moment   error, Retry                     the same; with target_session_attrs in the connection string
//	the server is a standby                 error, Stop                      nothing changed
//	the context ends, or Wake               its error, or ErrWoken           the stream, whole
//
// # Speed
//
// The decoder works in place: no allocation per row. The server makes a send per row, so speed depends on how rarely the reader is woken: reads are
// large, and work is done per read, not per message, wherever possible.
//
// # Where things are
//
// One file each: patience with a server (patience.go), the wake (wake.go), waiting (wait.go), reading bytes (wire.go, read.go), messages of the
// replication protocol (copydata.go), of pgoutput (decode.go, transaction.go, relation.go, row.go), statuses (status.go), opening (open.go,
// connect.go, start.go), the catalog (publication.go, membership.go, slot.go, replicaidentity.go, synchronous.go, system.go). Another message of
// pgoutput goes into a file of its own, with a case in decoder.decode; another check before a stream goes into prepare.
package replication
