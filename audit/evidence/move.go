package evidence

import (
	"bytes"
	"slices"

	"lapse/replication"
)

// moves is the pairing for rows that an update moves to another partition. PostgreSQL writes a delete from one partition directly followed
// by an insert into the other. They are one event if a heartbeat has found that moves are told from deletions in their table
// (lapse.covered.moves_by), and if they agree in each column of the identity that does not decide the partition; there must be at least
// one.
//
// A delete, directly followed by an insert of the same name into another partition, gives the same bytes: nothing in the WAL tells it from
// a move. Either way a row of that name exists afterwards, and its deletion is an event.
//
// Only a user's delete waits. Under a claim nothing is a move, so no move distorts the counts with which a batch is reconciled.
type moves struct {
	names  names
	tables tables
}

func (m *moves) waits(change *replication.Change, f finding) bool {
	return f.Cause == User && len(m.names.of(change.Relation, m.tables).movesBy) > 0
}

func (m *moves) join(waiting *Event, change *replication.Change) bool {
	if change.Op != replication.OpInsert || change.Relation.OID == waiting.TableOID {
		return false
	}
	from, to := m.names.of(waiting.Relation, m.tables), m.names.of(change.Relation, m.tables)
	if from.root != to.root {
		return false
	}
	there, agrees := waiting.Values[:0], false
	for i := range waiting.Keys {
		key := &waiting.Keys[i]
		at := slices.IndexFunc(change.Relation.Columns, func(c replication.Column) bool { return c.Name == key.Name })
		if at < 0 || at >= len(change.New) || change.New[at].Kind != replication.Text || key.Null {
			return false // nothing is known of a row that is too long to be read
		}
		value := change.New[at].Bytes
		if !slices.Contains(from.movesBy, key.Name) && !slices.Contains(to.movesBy, key.Name) {
			if !bytes.Equal(value, key.Value) {
				return false
			}
			agrees = true
		}
		there = append(there, Key{Name: key.Name, Value: value, Column: &change.Relation.Columns[at]})
	}
	if !agrees {
		return false
	}
	waiting.Op, waiting.MovedTo, waiting.Values = Move, to.name, there
	return true
}

// moved counts the last delete as a move.
func (a *Account) moved() {
	t := &a.Tallies[a.last]
	t.Events--
	t.moves++
	if t.Judged > 0 {
		t.judged(a.lastIs, -1)
	}
}

// splitMoves gives the moves tallies of their own, after the others if their table also lost rows.
func (a *Account) splitMoves() {
	for i := range a.Tallies {
		t := &a.Tallies[i]
		if t.moves == 0 {
			continue
		}
		of := *t
		of.Op, of.Events, of.moves, of.Judged, of.Due, of.NotDue = Move, t.moves, 0, 0, 0, 0
		if t.moves = 0; t.Events == 0 {
			*t = of
		} else {
			a.Tallies = append(a.Tallies, of)
		}
	}
}
