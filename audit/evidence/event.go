package evidence

import (
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
	Full      bool  // as above: the server names the row by all its values, none of which is in Keys
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

// set makes e the event of a change. Its keys are part of the stream's buffer and valid as long as the change is.
func (e *Event) set(tx *replication.Tx, change *replication.Change, f finding, claim *schemas.Claim, table string) {
	*e = Event{
		Tx: tx, Ordinal: change.Ordinal, Op: f.Op, Cause: f.Cause, Cascade: f.Cascade,
		TableOID: change.Relation.OID, Table: table, Relation: change.Relation, Keys: e.Keys[:0], Values: e.Values[:0],
		TruncateCascade: change.Cascade, RestartIdentity: change.RestartIdentity,
	}
	if f.Cause == System {
		e.Claim = claim
	}
	switch {
	case f.Op == Truncate:
	case f.Op == SoftDelete && change.Old == nil:
		// An update that leaves the key alone sends no old row: the new one has the key.
		if e.Full = change.Relation.ReplicaIdentity == 'f'; !e.Full {
			e.name(change.Relation, change.New)
		}
	case !change.OldIsKey:
		// REPLICA IDENTITY FULL: what was sent is the row itself, and every column of it says that it is of the key.
		e.Full = true
	default:
		e.name(change.Relation, change.Old)
	}
}

// name takes the columns that name the row, or none of them. Whoever owns a table can have it deleted from in a way that
// leaves them out, and must not stop the audit with it: before 18, PostgreSQL publishes no generated column, and says of a
// key of nothing else that the table has none.
func (e *Event) name(relation *replication.Relation, values []replication.Value) {
	for i := range relation.Columns {
		column := &relation.Columns[i]
		if !column.Key || i >= len(values) {
			continue
		}
		switch value := &values[i]; value.Kind {
		case replication.Text:
			e.Keys = append(e.Keys, Key{Name: column.Name, Value: value.Bytes, Column: column})
		case replication.Null:
			e.Keys = append(e.Keys, Key{Name: column.Name, Null: true, Column: column})
		default:
			e.Keys, e.Nameless = e.Keys[:0], true
			return
		}
	}
	e.Nameless = len(e.Keys) == 0
}

// NamesNoRow says why the event does not say which row was deleted, and what mends it for those that follow; why is empty
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
