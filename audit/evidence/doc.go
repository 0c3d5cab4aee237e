// Package evidence is the pure part of the audit: it turns a transaction's changes into events and records of the log, and reads both. It
// imports no Kafka client, starts no goroutine and reads no clock. The same write-ahead log, keys and routes give the same bytes, in every
// process and at any time.
//
// # A transaction becomes events and records
//
// An Assembler gets Begin, each change, and the commit. It returns events as soon as they are complete, and at the commit the markers and
// the records that the transaction leaves. A Router turns an event into records of the topics, a LogWriter each Content into a record of
// the log.
//
//	Begin ─▶ OPEN ── change ─────────────────────────▶ OPEN       its event, if it is one
//	         OPEN ── a delete that waits ────────────▶ WAITING    no event; the delete is copied
//	      WAITING ── the change that it is one with ─▶ OPEN       one event for both
//	      WAITING ── another change ─────────────────▶ OPEN       the delete's event, then that of the change
//	      WAITING ── another delete that waits ──────▶ WAITING    the former delete's event
//	   OPEN, WAITING ── commit ──────────────────────▶ done       the event of the delete that waits; markers, records
//	   any ── Begin ─────────────────────────────────▶ OPEN       what was open is forgotten: the slot sends it again
//
// Events point into the stream's buffer and cost no memory. At most one delete is copied: a user's delete from a partition whose table
// tells moves from deletions. An update that moves a row to another partition is a delete directly followed by an insert. move.go decides
// whether the two are one event.
//
// No file needs one listed below it:
//
//	json, reach, position, cause, claim, row, identifier    bytes, places, names
//	event, marker, header                                   what is said
//	spanner, debezium…, cloudevents, format                 in which words
//	hashkey, partition, route, router                       and where
//	heartbeat, logwriter, coverage, tables                  what a heartbeat leaves in the log
//	ledger, account, reconcile                              what a transaction claims, and what was seen of it
//	transaction, drop, origin, …record                      what the log has of it
//	catalogrow                                              rows that say what is in force
//	lateness, classify, due, move, assembler                whose each change is
//
// # Positions
//
// An event has a replication.Position: history, timeline, commit, ordinal. A record of the log has a LogPosition:
// history, timeline, the end of its transaction, and its number (seq) among the records with that end. Both are strictly
// ascending, in each partition and in the log.
//
// A transaction has any number of records: its own, that of a drop, then the coverage or the gaps of the heartbeat that it wrote, and its
// tables. All but the last say that another follows ("more"). The log reaches the transaction's end only with its last record; until then
// the slot is not confirmed, and sends the transaction again. A restart drops records that are in the log by their positions, and appends
// the rest. A record of a former version without seq and more is the first and the last.
//
// # Who deletes
//
// A delete is the system's if it follows a claim that verifies. The claim is the transaction's first published change: a
// row of lapse.batch, of this database and this transaction, started within a day of the commit, signed with a tag key. The
// signature covers the digest of the functions that ran, so the claim says which text deleted; the transaction's record
// has that digest. A claim covers deletes of its target and of the relations it lists, up to its batch_result.
//
// Under a claim to set a column (lapse.batch.soft, written by the function and not in the claim), the system's events are updates of the
// target instead, and nothing is deleted. If such a row of this transaction does not verify, they are unverified up to its result. Other
// updates, and all inserts, are no events.
//
// The server publishes nothing about a partition that is dropped. A policy that drops one writes a row of lapse.dropped, which is a batch
// and its result in one: the transaction's first published change, with a claim of its own kind, so that a signature for deleting rows does
// not allow a drop, nor the other way round. It is one event, with the number of rows that the function counted. A row that proves nothing
// is no event and names nothing; its transaction is unverified. If no key verifies a row of this transaction, the dropping functions count
// as its author: apart from a superuser only they may write one.
//
// If the batch says so (lapse.batch.hashed, also written by the function), the system's events have a keyed hash instead of each value that
// names a row. Every other event has the values: a forger must not choose what is shown of his deletions.
//
// Every other deletion under a claim is unverified. So is everything after any other row of lapse.batch: one that does not verify, a second
// one, or a valid one after somebody's own change (what came before stays user). A TRUNCATE is never the system's: no deletion function
// truncates. A row that cannot be read proves nothing, and stops nothing.
//
// Under lapse.batch.told some columns of the target's identity are values of the system's events instead of keys; under lapse.batch.due
// each row of the target is judged by the value in the log (due.go). Neither is in the claim: without them there are keys, and no
// judgement.
//
// # Which table a partition belongs to
//
// No change shows it. If a heartbeat finds other published tables than the one before, its transaction has a row of lapse.covered for each.
// From the end of that transaction on, events name the root, moves are told from deletions if the row has the columns for it, and its
// records in the log say for each table from where on, or up to where, it is covered. An assembler begins with the rows up to the last
// heartbeat before it.
//
// # Where the next one goes
//
//	another kind of record in the log (policy, hold, snapshot, checkpoint)
//	        one file beside coverage.go with its Content; the assembler adds it to Conclusion.Records, or the relay writes it
//	another event                   finding and event in classify.go
//	another event of two changes    a pairing beside the one in move.go
//	another marker                  marker.go
//	another format of events        one file beside cloudevents.go and a line in format.go
//	another choice of a route       it is in Route (route.go), in its record, and in what Routing reads back (routerecord.go)
//
// # What fails, and what comes of it
//
//	what fails                                   what comes of it
//	a ledger row that cannot be read, or does    it proves nothing, and the deletes under it are unverified; the audit
//	 not verify                                  goes on
//	a row without what names it                  an event without keys that says so
//	keys longer than a topic takes               long values are hashed, and the event names them
//	a record of the log in another format        an error; a record of another kind is read as far as all are alike
//	a record that is no event                    ErrNoEvent
package evidence
