package evidence

import (
	"time"

	"lapse/replication"
	"lapse/schemas"
)

// EventSchema is the version of the event format. Every event and every header has it.
const EventSchema = 1

// Key is one column of a deleted row's replica identity. Value is the type's text in the database's encoding.
type Key struct {
	Name   string
	Value  []byte
	Null   bool
	Column *replication.Column // says which type it is; nil if the value is not of the column's type: it is text
}

// Event is the facts of one deletion before formatting. Every format is made only from these.
type Event struct {
	Tx      *replication.Tx
	Ordinal uint32

	Op      Op
	Cause   Cause
	Cascade bool           // System only: a foreign key caused the deletion
	Claim   *schemas.Claim // System only: a claim without proof is never repeated

	TableOID uint32
	Table    string // as people write it
	Relation *replication.Relation
	// Root is the table that the row belongs to, as people write it: Table or, if that is a partition, its root. It is empty until a heartbeat has
	// found the table.
	Root      string
	Partition bool
	Keys      []Key // Delete, SoftDelete and Move only
	Full      bool  // as above: the row has no key but all its values, and Keys is empty
	Hashed    bool  // System only: Keys must be hashed
	// Values are, for a system event, the columns of the identity that the policy wants shown as values, which are not in Keys; for a Move,
	// what names the row in its new place.
	Values   []Key
	Due      Judgement
	Nameless bool // as above: the server did not send the key, and Keys is empty

	MovedTo string // Move only: the row's new partition, as people write it

	Drop *PartitionDrop // Drop only

	TruncateCascade bool // Truncate only: the statement's options
	RestartIdentity bool
}

// Judgement is the result of checking a row under "evidence: due".
type Judgement byte

// The judgements.
const (
	NotJudged  Judgement = iota // the policy does not ask for it, or the row is not of the batch's target
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

// PartitionDrop is a partition that a policy dropped whole: a row of lapse.dropped with a verified claim. The server publishes nothing
// about a DROP, so the row is the only source; what it says beyond the claim was written by the function.
type PartitionDrop struct {
	Claim    *schemas.Claim
	Relation *replication.Relation // the partition
	Root     string                // the table that it was a partition of, as people write it
	Rows     int64
	// Oldest and Newest are the first and last expiry values of its rows; zero if these are not instants.
	Oldest, Newest time.Time
}

// NamesNoRow says why the event does not name the deleted row, and how to fix that for later ones; why is empty if it does.
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

// appendKeys writes the identity columns as a JSON object, in the table's order. This is the record's key.
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

// appendDrop writes what events and log records have in common about a drop.
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
