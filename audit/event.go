package audit

import (
	"errors"
	"fmt"

	"lapse/replication"
	"lapse/schemas"
)

// EventSchema is the version of the event's format. It is in every event and in every header.
const EventSchema = 1

// Key is one column of a deleted row's replica identity. Value is the type's text in the database's encoding.
type Key struct {
	Name  string
	Value []byte
	Null  bool
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
	Table    string
	Keys     []Key // Delete only
	Full     bool  // Delete only: the server names the row by all its values, none of which is in Keys

	TruncateCascade bool // Truncate only: the statement's options
	RestartIdentity bool
}

// ErrNoIdentity says that a delete came without a single column that names its row. PostgreSQL sends none such.
var ErrNoIdentity = errors.New("a deleted row came without its replica identity")

// set makes e the event of a change. Its keys are part of the stream's buffer and valid as long as the change is.
func (e *Event) set(tx *replication.Tx, change *replication.Change, f Finding, claim *schemas.Claim, table string) error {
	*e = Event{
		Tx: tx, Ordinal: change.Ordinal, Op: f.Op, Cause: f.Cause, Cascade: f.Cascade,
		TableOID: change.Relation.OID, Table: table, Keys: e.Keys[:0],
		TruncateCascade: change.Cascade, RestartIdentity: change.RestartIdentity,
	}
	if f.Cause == System {
		e.Claim = claim
	}
	if f.Op == Truncate {
		return nil
	}
	if !change.OldIsKey {
		// REPLICA IDENTITY FULL: what was sent is the row itself, and every column of it says that it is of the key.
		e.Full = true
		return nil
	}
	for i := range change.Relation.Columns {
		column := &change.Relation.Columns[i]
		if !column.Key || i >= len(change.Old) {
			continue
		}
		switch value := &change.Old[i]; value.Kind {
		case replication.Text:
			e.Keys = append(e.Keys, Key{Name: column.Name, Value: value.Bytes})
		case replication.Null:
			e.Keys = append(e.Keys, Key{Name: column.Name, Null: true})
		default:
			return fmt.Errorf("event %s of %s: column %q of the replica identity was not sent: %w",
				tx.Position(change.Ordinal), table, column.Name, ErrNoIdentity)
		}
	}
	if len(e.Keys) == 0 {
		return fmt.Errorf("event %s of %s: %w", tx.Position(change.Ordinal), table, ErrNoIdentity)
	}
	return nil
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
