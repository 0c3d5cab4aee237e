package replication

import (
	"errors"
	"math"

	"github.com/jackc/pglogrepl"

	"lapse/schemas"
)

// What can be wrong with a message. An error says nothing else about the content, because a message contains rows of a user's table.
var (
	errShort         = errors.New("it ends too early")
	errTrailing      = errors.New("it is longer than its content")
	errUnknownType   = errors.New("its type was not asked for and is not understood")
	errNoTransaction = errors.New("it is outside a transaction")
	errInTransaction = errors.New("it starts a transaction inside another")
	errNoRelation    = errors.New("it names a table that was never described")
	errColumnCount   = errors.New("its row does not have the number of columns that the table was described with")
	errTupleKind     = errors.New("it has a row of unknown kind")
	errColumnKind    = errors.New("it has a column of unknown kind, or one in binary form, which was not asked for")
	errCommit        = errors.New("the commit is not that of the open transaction")
	errOrdinal       = errors.New("the transaction has more changes than an ordinal can count")
	errFlags         = errors.New("it has flags that are not understood")
	errColumns       = errors.New("it describes more columns than a table can have")
	errTooLong       = errors.New("it is longer than any message of its type can be")
)

// decoder turns pgoutput's messages (protocol 1, text) into Messages, in place: it reuses one Message, one Change and two rows, and values point
// into the bytes from which they were decoded. It keeps the relations and the open transaction, so messages must come in the order of the stream.
// After an error it must not be used again.
type decoder struct {
	timelineOf func(schemas.LSN) schemas.Timeline
	history    schemas.History // of transactions from here on

	types     map[uint32]TypeName // of relations that follow
	relations map[uint32]*Relation
	last      *Relation // of the last change, and usually of the next one too

	tx      *Tx    // open transaction
	ordinal uint64 // of its next change
	begun   bool   // KindBegin is not delivered yet

	message   Message
	change    Change
	old, new  []Value
	truncated []*Relation // tables of the last truncate that are not delivered yet
}

func newDecoder(timelineOf func(schemas.LSN) schemas.Timeline) *decoder {
	return &decoder{timelineOf: timelineOf, types: map[uint32]TypeName{}, relations: make(map[uint32]*Relation)}
}

// open reports whether a transaction has begun and not ended.
func (d *decoder) open() bool { return d.tx != nil }

// pending returns the message to deliver before anything else is decoded, or nil. next is the type of the following message, or zero if unknown. The
// begin of a transaction waits for it, because the replication origin, if there is one, comes as the message after the begin. A keepalive in between is
// delivered before the begin.
func (d *decoder) pending(next byte) *Message {
	switch {
	case d.begun && next != 0 && next != byte(pglogrepl.MessageTypeOrigin):
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

// decode reads one message. It returns nil if there is nothing to deliver; call pending again after it.
func (d *decoder) decode(data []byte) (*Message, error) {
	c := cursor{rest: data}
	var m *Message
	var err error
	switch kind := pglogrepl.MessageType(c.byte()); kind {
	case pglogrepl.MessageTypeBegin:
		err = d.begin(&c)
	case pglogrepl.MessageTypeOrigin:
		err = d.origin(&c)
	case pglogrepl.MessageTypeCommit:
		m, err = d.commit(&c)
	case pglogrepl.MessageTypeRelation:
		err = d.relation(&c)
	case pglogrepl.MessageTypeType:
		d.types[c.uint32()] = TypeName{Schema: string(c.text()), Name: string(c.text())}
	case pglogrepl.MessageTypeInsert, pglogrepl.MessageTypeUpdate, pglogrepl.MessageTypeDelete:
		m, err = d.row(&c, Op(kind))
	case pglogrepl.MessageTypeTruncate:
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
