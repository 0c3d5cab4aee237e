package replication

import (
	"math"
	"slices"
)

// wantedSchema has the tables of evidence. The values of other tables' large inserts and updates are not needed.
const wantedSchema = "lapse"

// changeHead is the part of a change that says what it is about: type, table, and kind of the row that follows.
const changeHead = 1 + 4 + 1

// wants reports whether to read a large change whole, given its head and its size. Otherwise it is delivered without values: inserts into
// tables that are no evidence, and rows deleted under REPLICA IDENTITY FULL, which are not published. An insert directly after a delete
// from another table is needed: together they may be an update that moves a row to another partition. The ledger's columns are bounded, and
// so are keys, which are in an index: a change that is longer than maxBuffered nevertheless proves nothing, and must not stop the reader.
func (d *decoder) wants(head []byte, size int64) bool {
	c := cursor{rest: head}
	op, oid, kind := Op(c.byte()), c.uint32(), c.byte()
	switch op {
	case OpUpdate:
		return d.relations[oid] != nil && size <= maxBuffered // the new row names the row
	case OpInsert:
		rel := d.relations[oid]
		return rel != nil && (rel.Schema == wantedSchema || d.mayMove(oid)) && size <= maxBuffered
	case OpDelete:
		return kind != 'O' && size <= maxBuffered
	default:
		return true
	}
}

// mayMove reports whether an insert into a table may be the second half of an update that moves a row.
func (d *decoder) mayMove(oid uint32) bool {
	return d.ordinal > 0 && d.change.Op == OpDelete && d.change.Relation.OID != oid
}

// decodeHead decodes a change from its head alone. All its values are Unsent.
func (d *decoder) decodeHead(head []byte) (*Message, error) {
	c := cursor{rest: head}
	op := Op(c.byte())
	kind, err := d.rowHead(&c, op)
	if err != nil {
		return nil, err
	}
	if kind != 'N' {
		d.change.OldIsKey = kind == 'K'
		d.old = unsent(d.old, len(d.change.Relation.Columns))
		d.change.Old = d.old
	}
	if op != OpDelete {
		d.new = unsent(d.new, len(d.change.Relation.Columns))
		d.change.New = d.new
	}
	return d.rowDone(), nil
}

// unsent returns a row of columns that are not known.
func unsent(values []Value, count int) []Value {
	values = slices.Grow(values[:0], count)[:count]
	for i := range values {
		values[i] = Value{Kind: Unsent}
	}
	return values
}

// rowHead reads the beginning of an insert, update or delete, and makes it the present change. kind is that of the row that follows: a key,
// an old row or a new one.
func (d *decoder) rowHead(c *cursor, op Op) (kind byte, err error) {
	if !d.open() {
		return 0, errNoTransaction
	}
	if d.ordinal > math.MaxUint32 {
		return 0, errOrdinal
	}
	oid, kind := c.uint32(), c.byte()
	if c.short {
		return 0, errShort
	}
	rel, err := d.find(oid)
	if err != nil {
		return 0, err
	}
	switch old := kind == 'K' || kind == 'O'; {
	case kind != 'N' && !old, old && op == OpInsert, !old && op == OpDelete:
		return 0, errTupleKind
	}
	d.change = Change{Op: op, Relation: rel, Ordinal: uint32(d.ordinal)}
	return kind, nil
}

// rowDone ends a change, and gives it its ordinal in the transaction.
func (d *decoder) rowDone() *Message {
	d.ordinal++
	d.message = Message{Kind: KindChange, Tx: d.tx, Change: &d.change, Open: true}
	return &d.message
}

// row reads an insert, update or delete.
func (d *decoder) row(c *cursor, op Op) (*Message, error) {
	kind, err := d.rowHead(c, op)
	if err != nil {
		return nil, err
	}
	rel := d.change.Relation
	if kind != 'N' {
		d.change.OldIsKey = kind == 'K'
		if d.old, err = d.tuple(c, rel, d.old, d.change.OldIsKey); err != nil {
			return nil, err
		}
		d.change.Old = d.old
		if op == OpUpdate {
			kind = c.byte()
		}
	}
	if op != OpDelete {
		if kind != 'N' {
			return nil, errTupleKind
		}
		if d.new, err = d.tuple(c, rel, d.new, false); err != nil {
			return nil, err
		}
		d.change.New = d.new
	}
	return d.rowDone(), nil
}

// tuple reads one row into values, which it extends to the table's width once.
func (d *decoder) tuple(c *cursor, rel *Relation, values []Value, keyOnly bool) ([]Value, error) {
	count := int(c.uint16())
	if c.short {
		return values, errShort
	}
	if count != len(rel.Columns) {
		return values, errColumnCount
	}
	if cap(values) < count {
		values = make([]Value, count)
	}
	values = values[:count]
	for i := range values {
		switch c.byte() {
		case 't':
			values[i] = Value{Kind: Text, Bytes: c.take(int(c.uint32()))}
		case 'n':
			values[i] = Value{Kind: Null}
			if keyOnly && !rel.Columns[i].Key {
				values[i].Kind = Unsent
			}
		case 'u':
			values[i] = Value{Kind: Unchanged}
		default:
			if c.short {
				return values, errShort
			}
			return values, errColumnKind
		}
	}
	if c.short {
		return values, errShort
	}
	return values, nil
}
