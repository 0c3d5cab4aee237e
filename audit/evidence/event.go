package evidence

import (
	"time"

	"lapse/replication"
	"lapse/schemas"
)

// EventSchema is the version of the event's format. It is in every event and in every header.
const EventSchema = 1

// Key is one column of a deleted row's replica identity. Value is the type's text in the database's encoding.
type Key struct {
	Name   string
	Value  []byte
	Null   bool
	Column *replication.Column // says which type it is; nil if the value is not of the column's type: it is text
}

// Event is the facts of one deletion before they are bytes. Every format is made from these, and from nothing else.
type Event struct {
	Tx      *replication.Tx
	Ordinal uint32

	Op      Op
	Cause   Cause
	Cascade bool           // System only: a foreign key took the row along
	Claim   *schemas.Claim // System only: what a writer claimed without proof is never repeated

	TableOID uint32
	Table    string // as people write it
	Relation *replication.Relation
	// Root is the table that the row belongs to, as people write it: Table or, if that is a partition, its root. It is empty where no
	// heartbeat has found the table yet.
	Root      string
	Partition bool
	Keys      []Key // Delete, SoftDelete and Move only
	Full      bool  // as above: the server names the row by all its values, and Keys has none of them
	Hashed    bool  // System only: values of Keys are not to be told
	// Values are of a system event the columns of the identity that the policy wants told as values, which are not in Keys; of a Move
	// what names the row where it is.
	Values   []Key
	Due      Judgement
	Nameless bool // as above: the server did not send what names the row, and Keys is empty

	MovedTo string // Move only: the partition where the row is, as people write it

	Drop *PartitionDrop // Drop only

	TruncateCascade bool // Truncate only: the statement's options
	RestartIdentity bool
}

// Judgement is what the log shows of a row under "evidence: due".
type Judgement byte

// The judgements.
const (
	NotJudged  Judgement = iota // the policy does not ask for it, or the row is none of the batch's target
	IsDue                       // by the value that the log has, the row was due at the cutoff
	IsNotDue                    // it was not
	CannotTell                  // the log does not have the value, or it cannot be read
)

// member is what the event says of it.
func (j Judgement) member() string {
	switch j {
	case IsDue:
		return `,"due":true`
	case IsNotDue:
		return `,"due":false`
	case CannotTell:
		return `,"due":null`
	default:
		return ""
	}
}

// PartitionDrop is a partition that a policy dropped whole: a row of lapse.dropped whose claim verifies. The server publishes nothing
// of a DROP, so the row is all there is of it; what it says beyond the claim is the word of the function that wrote it.
type PartitionDrop struct {
	Claim    *schemas.Claim
	Relation *replication.Relation // the partition
	Root     string                // the table that it was a partition of, as people write it
	Rows     int64
	// The oldest and the newest instant of what its rows expired by; zero where it is none that events can say.
	Oldest, Newest time.Time
}

// NamesNoRow says why the event does not say which row was deleted, and what fixes it for those that follow; why is empty
// if it does.
func (e *Event) NamesNoRow() (why, fix string) {
	switch {
	case e.Full:
		return "it has replica identity full: what the server sends is all of the row",
			"alter table " + e.Table + " replica identity default, or using index"
	case e.Nameless:
		return "the server does not send the columns of its replica identity: it does not publish generated columns",
			"alter table " + e.Table + " replica identity using index INDEX, of columns that are not null and not generated"
	default:
		return "", ""
	}
}

// appendKeys writes the identity columns as a JSON object, in the table's order. It is the record's key.
func appendKeys(dst []byte, keys []Key, form TextForm) []byte {
	dst = append(dst, '{')
	for i := range keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendText(dst, keys[i].Name, form), ':')
		if keys[i].Null {
			dst = append(dst, "null"...)
		} else {
			dst = appendText(dst, keys[i].Value, form)
		}
	}
	return append(dst, '}')
}

// appendDrop writes what events and the log say of a drop alike.
func appendDrop(b []byte, d *PartitionDrop) []byte {
	b = appendInt(append(b, `"rows":`...), d.Rows)
	if !d.Oldest.IsZero() {
		b = appendInstant(append(b, `,"oldest":`...), d.Oldest)
	}
	if !d.Newest.IsZero() {
		b = appendInstant(append(b, `,"newest":`...), d.Newest)
	}
	return b
}
