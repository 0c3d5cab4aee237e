// Package rows commits to each event of a transaction, so that the deletion of one row can be shown without revealing any other.
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
// Numbers are big-endian: system and history's LSN 8 bytes, the others 4. A text is its length (unsigned varint) and its bytes, UTF-8. identity
// is the row's key as canonical JSON, whatever the format of events: {"id":"42"}. published is what the event has in place of the identity if
// a policy wants keys hashed, otherwise empty. The commitment is the leaf's hash, SHA-256(0x00 ‖ leaf). The transaction's record has the
// tree's root and the month, and is itself a leaf of the log.
//
// Without the month's key no one can guess a salt, and without its salt a commitment reveals nothing of its row. A reader with one salt can
// open one row. Once the month's key is destroyed, no commitment can be linked to a row, and every root and proof still verifies.
//
// # What commits, and when
//
// A Committer takes every event of a transaction, also those that the topics already have: the same write-ahead log and key give the same
// root. Its work grows with the events; its memory does not.
//
// # The proof store
//
// To prove one row takes the root and the transaction's other commitments. A topic of their own stores them in chunks. The auditor
// appends a transaction's record only after its chunks are acknowledged, as with events. A transaction of one event has no chunk: its root is
// the commitment. After a crash chunks may be there twice, and others may have written false ones: a reader takes the chunks of a
// transaction's position, one for each first ordinal, whose commitments produce the root that the log has signed. So the store needs no order,
// no tail and no check at a start. It may lose old chunks: then no single rows of that time can be shown, and nothing else changes.
//
// # Receipts
//
// A Receipt has the transaction's record with its inclusion proof and checkpoint (C2SP tlog-proof), the row's facts without the identity, the
// row's salt, and its inclusion proof in the transaction's tree. Anyone who knows the row's key can check it without Lapse's owner, and so
// can anyone who guesses the key.
package rows
