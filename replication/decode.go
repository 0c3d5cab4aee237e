package replication

import (
	"errors"
	"math"
	"slices"
	"time"

	"lapse/schemas"
)

// What can be wrong with a message. The words are the whole of what an error says about its content: bytes of a message
// are rows of somebody's table.
var (
	errShort         = errors.New("it ends too early")
	errTrailing      = errors.New("it is longer than its content")
	errUnknownType   = errors.New("its type was not asked for and is not understood")
	errNoTransaction = errors.New("it stands outside a transaction")
	errInTransaction = errors.New("it starts a transaction inside another")
	errNoRelation    = errors.New("it names a table that was never described")
	errColumnCount   = errors.New("its row does not have the number of columns that the table was described with")
	errTupleKind     = errors.New("it has a row of unknown kind")
	errColumnKind    = errors.New("it has a column of unknown kind, or one in binary form, which was not asked for")
	errCommit        = errors.New("the commit is not that of the open transaction")
	errOrdinal       = errors.New("the transaction has more changes than an ordinal can count")
	errTime          = errors.New("its time is out of range")
	errFlags         = errors.New("it has flags that are not understood")
	errColumns       = errors.New("it describes more columns than a table can have")
	errTooLong       = errors.New("it is longer than any message of its type can be")
)

// maxColumns is PostgreSQL's MaxHeapAttributeNumber. Only a damaged message claims more.
const maxColumns = 1600

// wantedSchema has the tables of evidence: of other tables' inserts and updates, however large, nobody wants the values.
const wantedSchema = "lapse"

// changeHead is the part of a change that says what it is about: type, table, and kind of the row that follows.
const changeHead = 1 + 4 + 1

// decoder turns pgoutput's messages (protocol 1, text) into Messages, in place: one Message, one Change and two rows are
// used again and again, and values point into the bytes they were decoded from. It holds the relations and the open
// transaction, so messages must come in the order of the stream. After an error it must not be used further.
type decoder struct {
	timelineOf func(schemas.LSN) schemas.Timeline
	history    schemas.History // of transactions from here on

	relations map[uint32]*Relation
	last      *Relation // of the last change, which most often is that of the next one too

	tx      *Tx    // open transaction
	ordinal uint64 // of its next change
	begun   bool   // KindBegin is still to be delivered

	message   Message
	change    Change
	old, new  []Value
	truncated []*Relation // tables of the last truncate that are still to be delivered
}

func newDecoder(timelineOf func(schemas.LSN) schemas.Timeline) *decoder {
	return &decoder{timelineOf: timelineOf, relations: make(map[uint32]*Relation)}
}

// open says whether a transaction has begun and not ended.
func (d *decoder) open() bool { return d.tx != nil }

// pending returns the message that is to be delivered before anything else is decoded, or nil. next is the type of the
// message that follows, or zero while that is unknown. The begin of a transaction waits for it: the replication origin,
// if there is one, comes as the message after the begin.
func (d *decoder) pending(next byte) *Message {
	switch {
	case d.begun && next != 0 && next != 'O':
		d.begun = false
		d.message = Message{Kind: KindBegin, Tx: d.tx, Open: true}
		return &d.message
	case len(d.truncated) > 0:
		d.change.Relation = d.truncated[0]
		d.change.Ordinal = uint32(d.ordinal)
		d.truncated = d.truncated[1:]
		d.ordinal++
		return &d.message
	default:
		return nil
	}
}

// decode reads one message. It returns nil where there is nothing to deliver; pending must be asked again after it.
func (d *decoder) decode(data []byte) (*Message, error) {
	c := cursor{rest: data}
	var m *Message
	var err error
	switch kind := c.byte(); kind {
	case 'B':
		err = d.begin(&c)
	case 'O':
		err = d.origin(&c)
	case 'C':
		m, err = d.commit(&c)
	case 'R':
		err = d.relation(&c)
	case 'Y':
		c.uint32()
		c.text()
		c.text()
	case 'I', 'U', 'D':
		m, err = d.row(&c, Op(kind))
	case 'T':
		err = d.truncate(&c)
	default:
		if !c.short {
			err = errUnknownType
		}
	}
	switch {
	case c.short:
		return nil, errShort
	case err != nil:
		return nil, err
	case len(c.rest) > 0:
		return nil, errTrailing
	default:
		return m, nil
	}
}

// wants says whether a large change is to be read whole, given its head and its size. What is not wanted is delivered
// without values: inserts and updates of tables that are no evidence, and rows deleted under REPLICA IDENTITY FULL, which
// are not published. The ledger's columns are bounded, and so are keys, which stand in an index: what is longer than
// maxBuffered all the same proves nothing, and must not stop who reads it.
func (d *decoder) wants(head []byte, size int64) bool {
	c := cursor{rest: head}
	op, oid, kind := Op(c.byte()), c.uint32(), c.byte()
	switch op {
	case OpInsert, OpUpdate:
		rel := d.relations[oid]
		return rel != nil && rel.Schema == wantedSchema && size <= maxBuffered
	case OpDelete:
		return kind != 'O' && size <= maxBuffered
	default:
		return true
	}
}

// decodeHead reads a change of which no more than the head is there. Its values are all Unsent.
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

// unsent makes a row of columns that are not known.
func unsent(values []Value, count int) []Value {
	values = slices.Grow(values[:0], count)[:count]
	for i := range values {
		values[i] = Value{Kind: Unsent}
	}
	return values
}

func (d *decoder) begin(c *cursor) error {
	if d.open() {
		return errInTransaction
	}
	commit, micros, xid := c.lsn(), int64(c.uint64()), c.uint32()
	if c.short {
		return errShort
	}
	at, err := instant(micros)
	if err != nil {
		return err
	}
	d.tx = &Tx{XID: xid, CommitLSN: commit, CommitTime: at, History: d.history, Timeline: d.timelineOf(commit)}
	d.ordinal, d.begun = 0, true
	return nil
}

func (d *decoder) origin(c *cursor) error {
	if !d.begun {
		return errNoTransaction
	}
	c.lsn() // where the transaction ended at its origin
	d.tx.Origin = string(c.text())
	return nil
}

func (d *decoder) commit(c *cursor) (*Message, error) {
	if !d.open() {
		return nil, errNoTransaction
	}
	flags, commit, end, micros := c.byte(), c.lsn(), c.lsn(), int64(c.uint64())
	if c.short {
		return nil, errShort
	}
	if flags != 0 {
		return nil, errFlags
	}
	at, err := instant(micros)
	if err != nil {
		return nil, err
	}
	tx := d.tx
	if commit != tx.CommitLSN || !at.Equal(tx.CommitTime) || end <= commit {
		return nil, errCommit
	}
	tx.EndLSN = end
	d.tx = nil
	d.message = Message{Kind: KindCommit, Tx: tx}
	return &d.message, nil
}

func (d *decoder) relation(c *cursor) error {
	rel := &Relation{OID: c.uint32(), Schema: string(c.text()), Name: string(c.text()), ReplicaIdentity: c.byte()}
	if rel.Schema == "" {
		rel.Schema = "pg_catalog" // which pgoutput leaves out
	}
	count := int(c.uint16())
	if count > maxColumns {
		return errColumns
	}
	rel.Columns = make([]Column, 0, count)
	for range count {
		flags := c.byte()
		if flags > 1 {
			return errFlags
		}
		rel.Columns = append(rel.Columns, Column{
			Name: string(c.text()), TypeOID: c.uint32(), TypeMod: int32(c.uint32()), Key: flags == 1,
		})
		if c.short {
			return errShort
		}
	}
	if c.short {
		return errShort
	}
	d.relations[rel.OID] = rel
	d.last = nil
	return nil
}

func (d *decoder) find(oid uint32) (*Relation, error) {
	if d.last != nil && d.last.OID == oid {
		return d.last, nil
	}
	rel, ok := d.relations[oid]
	if !ok {
		return nil, errNoRelation
	}
	d.last = rel
	return rel, nil
}

// rowHead reads what an insert, update or delete begins with, and makes it the change at hand. kind is that of the row
// that follows: a key, an old row or a new one.
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

// rowDone ends a change, which has its place among those of the transaction from then on.
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

// tuple reads one row into values, which it grows to the table's width once.
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

// truncate reads the tables of one TRUNCATE; pending delivers them one by one.
func (d *decoder) truncate(c *cursor) error {
	if !d.open() {
		return errNoTransaction
	}
	count, options := int(c.uint32()), c.byte()
	if c.short || count < 0 || count > len(c.rest)/4 {
		return errShort
	}
	if options > 3 {
		return errFlags
	}
	if d.ordinal+uint64(count) > math.MaxUint32 {
		return errOrdinal
	}
	d.truncated = d.truncated[:0]
	for range count {
		rel, err := d.find(c.uint32())
		if err != nil {
			return err
		}
		d.truncated = append(d.truncated, rel)
	}
	d.change = Change{Op: OpTruncate, Cascade: options&1 != 0, RestartIdentity: options&2 != 0}
	d.message = Message{Kind: KindChange, Tx: d.tx, Change: &d.change, Open: true}
	return nil
}

// postgresEpoch is 2000-01-01 in Unix microseconds; PostgreSQL counts from there.
const postgresEpoch = 946_684_800_000_000

func instant(micros int64) (time.Time, error) {
	if micros > math.MaxInt64-postgresEpoch {
		return time.Time{}, errTime
	}
	return time.UnixMicro(micros + postgresEpoch).UTC(), nil
}
