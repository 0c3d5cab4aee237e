// Package rows commits to each event of a transaction, so that one row's deletion can be shown without showing any other.
//
// # What is committed to
//
// Each event is a leaf of a Merkle tree (RFC 6962) of its own transaction, in the order of ordinals. A leaf is a salt and the facts:
//
//	secret  = HMAC-SHA-256(key of the month, 0x01 ‖ system ‖ database ‖ history ‖ timeline ‖ commit LSN)
//	salt    = SHA-256(secret ‖ ordinal)
//	leaf    = salt ‖ 0x01 ‖ system ‖ database ‖ history ‖ timeline ‖ commit LSN ‖ ordinal ‖ text(table) ‖ text(op) ‖ text(cause)
//	          ‖ text(identity) ‖ text(published)
//
// Numbers are big-endian: system, history's LSN 8 bytes, the others 4. A text is its length (unsigned varint) and its bytes, UTF-8. identity is
// what names the row as canonical JSON, whatever the format of events: {"id":"42"}. published is what the event has in its place where a
// policy wants keys hashed, else empty. The commitment is the leaf's hash, SHA-256(0x00 ‖ leaf). The record of the transaction has the
// tree's root and the month, and is itself a leaf of the log.
//
// Without the month's key a salt cannot be guessed, and without its salt no commitment says anything of its row. Who has one salt opens one
// row. When the month's key is gone, no commitment can be linked to a row, and every root and proof still verifies.
//
// # What commits, and when
//
// A Committer takes every event of a transaction, also those that are in the topics already: the same write-ahead log and key give the same
// root. Its work grows with the events; its memory does not.
//
// # The proof store
//
// A root alone proves nothing of one row: the other commitments are needed too. They go into a topic of their own, in chunks of a transaction.
// A chunk is acknowledged before the transaction's record is appended, like an event. A transaction of one event has no chunk: its root is the
// commitment. Chunks may be there twice after a crash, and anybody may have written others: a reader takes those of a transaction's position,
// one for each beginning, and wants them to come to the root that the log has signed. So the store needs no order, no tail and no check
// at a start, and may lose its old part: nothing can be shown of single rows of it then, and nothing else changes.
//
// # Receipts
//
// A Receipt has the transaction's record with its inclusion proof and checkpoint (C2SP tlog-proof), the row's facts without the identity, its
// salt, and its inclusion proof in the transaction's tree. Who knows the key of the row can check it without us; so can who guesses it.
package rows
