package replication

import (
	"time"

	"github.com/jackc/pglogrepl"

	"lapse/schemas"
)

// Kind says what a Message is about.
type Kind byte

// The kinds of messages, in the order of one transaction.
const (
	KindBegin     Kind = 'B'
	KindChange    Kind = 'R'
	KindCommit    Kind = 'C'
	KindKeepalive Kind = 'k'
)

// String names the kind in logs and test output.
func (k Kind) String() string {
	switch k {
	case KindBegin:
		return "begin"
	case KindChange:
		return "change"
	case KindCommit:
		return "commit"
	case KindKeepalive:
		return "keepalive"
	default:
		return "unknown"
	}
}

// Op is what happened to a row or a table.
type Op byte

// The operations, by pgoutput's letters.
const (
	OpInsert   = Op(pglogrepl.MessageTypeInsert)
	OpUpdate   = Op(pglogrepl.MessageTypeUpdate)
	OpDelete   = Op(pglogrepl.MessageTypeDelete)
	OpTruncate = Op(pglogrepl.MessageTypeTruncate)
)

// String names the operation in logs and test output.
func (o Op) String() string {
	switch o {
	case OpInsert:
		return "insert"
	case OpUpdate:
		return "update"
	case OpDelete:
		return "delete"
	case OpTruncate:
		return "truncate"
	default:
		return "unknown"
	}
}

// Message is what Next delivers. It and its Change are valid until the next call of Next, and the bytes in it until the next call of Next, Wait or
// During: each of them reads. Its Tx and Relation may be kept.
type Message struct {
	Kind Kind

	// Tx is the transaction that is open, or that this message ends. nil on a keepalive between transactions.
	Tx *Tx

	// Change is set on KindChange only.
	Change *Change

	// Open says that a transaction has begun and not ended. A keepalive's position must never be confirmed while it
	// is: the rest of the transaction would be lost.
	Open bool

	// WALEnd is set on KindKeepalive only: how far the server has read its log for this slot. If no transaction is open, every published change
	// below it was delivered.
	WALEnd schemas.LSN

	// ReplyRequested says that the server asked for an answer. Next has answered already, with the confirmed position. If the caller can confirm
	// WALEnd it should, because a server that shuts down waits for it.
	ReplyRequested bool

	// Stopping says that the server shuts down and waits for this stream: see Stream.CheckStop. Between transactions it means that the server
	// asked twice within 100 ms, as hardly any other server does; it keeps asking until everything is confirmed or the stream is closed. If WALEnd
	// is zero, a transaction is open, and another connection was refused because of the shutdown.
	Stopping bool
}

// Tx is one committed transaction. A stream makes one per transaction and never changes it after KindCommit.
type Tx struct {
	XID        uint32 // low half of the 64-bit transaction id
	CommitLSN  schemas.LSN
	CommitTime time.Time        // UTC, in microseconds
	Origin     string           // replication origin; empty for what was written here
	History    schemas.History  // set by Stream.SetHistory; zero if it was not called
	Timeline   schemas.Timeline // the timeline of CommitLSN

	// EndLSN is what to confirm once everything of this transaction is durable. Only known at KindCommit; zero before.
	EndLSN schemas.LSN
}

// Position returns the position of the change with this ordinal in the transaction.
func (t *Tx) Position(ordinal uint32) Position {
	return Position{History: t.History, Timeline: t.Timeline, Commit: t.CommitLSN, Ordinal: ordinal}
}

// Change is one changed row or one truncated table.
type Change struct {
	Op       Op
	Relation *Relation

	// Old is the row before, as far as the replica identity shows; nil if the server sent none (inserts, truncates, updates that do not change
	// the identity).
	Old []Value
	// New is the row after; nil for deletes and truncates.
	New []Value

	// OldIsKey says that Old holds the replica identity's columns only. The others are Unsent.
	OldIsKey bool

	// Ordinal counts the changes of the transaction from 0: a row is one, a truncate is one per table.
	Ordinal uint32

	// Cascade and RestartIdentity repeat the options of a TRUNCATE. One statement gives one Change per published table that it emptied,
	// including those reached by CASCADE.
	Cascade         bool
	RestartIdentity bool
}

// ValueKind says how much is known of one column's value.
type ValueKind byte

// The kinds of values.
const (
	// Null is SQL's NULL.
	Null ValueKind = iota
	// Unsent is a column outside the replica identity in an old row: the server sends the byte of a NULL there, but the value is not known. So are
	// all values of a row of more than 1 MiB that is not needed: inserted outside the tables of evidence and not directly after a delete from another
	// table, or deleted under REPLICA IDENTITY FULL; and of any row of more than 16 MiB.
	Unsent
	// Unchanged is a large value that the update did not change, and that the server therefore did not send.
	Unchanged
	// Text is the type's text form in the database's encoding, in Bytes.
	Text
)

// String names the kind in test output.
func (k ValueKind) String() string {
	switch k {
	case Null:
		return "null"
	case Unsent:
		return "unsent"
	case Unchanged:
		return "unchanged"
	case Text:
		return "text"
	default:
		return "unknown"
	}
}

// Value is one column of a row. Bytes are part of the receive buffer.
type Value struct {
	Kind  ValueKind
	Bytes []byte
}
