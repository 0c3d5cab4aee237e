package rows

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"lapse/audit/evidence"
	"lapse/audit/tree"
	"lapse/replication"
	"lapse/schemas"
)

// version is the version of the encoding.
const version = 1

// Facts are what a leaf states of one event.
type Facts struct {
	SystemIdentifier uint64
	DatabaseOID      uint32
	At               replication.Position
	Table, Op, Cause string
	Identity         []byte // canonical JSON
	Published        []byte // what the event has in its place; nil if the event has the identity
}

// appendPlace appends a transaction's position.
func appendPlace(b []byte, system uint64, database uint32, at replication.Position) []byte {
	b = binary.BigEndian.AppendUint64(append(b, version), system)
	b = binary.BigEndian.AppendUint32(b, database)
	b = binary.BigEndian.AppendUint32(b, uint32(at.History))
	b = binary.BigEndian.AppendUint32(b, uint32(at.Timeline))
	return binary.BigEndian.AppendUint64(b, uint64(at.Commit))
}

func appendText[T string | []byte](b []byte, text T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// Salt hides a row: no one can guess it without the key of its month.
type Salt [sha256.Size]byte

// Commitment hashes a row's leaf.
func (f *Facts) Commitment(salt Salt) tlog.Hash {
	b := append([]byte{0}, salt[:]...)
	b = appendPlace(b, f.SystemIdentifier, f.DatabaseOID, f.At)
	b = binary.BigEndian.AppendUint32(b, f.At.Ordinal)
	b = appendText(appendText(appendText(b, f.Table), f.Op), f.Cause)
	return sha256.Sum256(appendText(appendText(b, f.Identity), f.Published))
}

// secret derives the salts of one transaction. It is not safe for concurrent use.
type secret struct {
	mac hash.Hash
	buf [sha256.Size + 4]byte // the secret and an ordinal
}

func (s *secret) begin(system uint64, database uint32, at replication.Position) {
	var place [64]byte
	s.mac.Reset()
	s.mac.Write(appendPlace(place[:0], system, database, at))
	s.mac.Sum(s.buf[:0])
}

func (s *secret) salt(ordinal uint32) Salt {
	binary.BigEndian.PutUint32(s.buf[sha256.Size:], ordinal)
	return sha256.Sum256(s.buf[:])
}

// Salts returns the salts of a transaction's rows. key is the key of the transaction's month.
func Salts(key schemas.Key, system uint64, database uint32, at replication.Position) func(ordinal uint32) Salt {
	s := &secret{mac: hmac.New(sha256.New, key)}
	s.begin(system, database, at)
	return s.salt
}

// NoKeyError says that the key file has no key of a month.
type NoKeyError struct{ Epoch schemas.Epoch }

func (e *NoKeyError) Error() string {
	return fmt.Sprintf("the file of the key named rows has no key of %s, under which the rows of that month must be committed to: run lapse keys rotate "+
		"--epoch %s, give the file to every machine that audits, and start the auditor again", e.Epoch, e.Epoch)
}

// Committer commits to the events of transactions, one after the other. Its memory does not grow with the events. It is not safe for
// concurrent use.
type Committer struct {
	route *evidence.Route
	form  evidence.TextForm
	keys  schemas.EpochKeys

	epoch     schemas.Epoch // the month of secret
	from, to  time.Time     // the month's bounds
	destroyed bool          // the month's key was destroyed: there is no secret
	secret    secret

	tx     *replication.Tx // nil if none is open, or if it has no event yet
	tree   tree.Edge
	first  uint32
	leaf   []byte // the previous event's leaf; the next event can reuse the bytes up to facts
	facts  int
	like   alike
	ident  []byte
	chunk  chunk
	single tlog.Hash
}

// alike is what two events must have in common for their leaves to share these bytes.
type alike struct {
	table string
	op    evidence.Op
	cause evidence.Cause
}

// NewCommitter makes a committer for a route's events. It returns nil if the route names no keys, as a former version wrote it; records then
// have no root.
func NewCommitter(route *evidence.Route, keys schemas.EpochKeys) *Committer {
	if len(route.RowsKeys) == 0 {
		return nil
	}
	return &Committer{route: route, form: evidence.TextFormOf(route.Source.Encoding), keys: keys}
}

// Begin starts a transaction. It drops one that is still open.
func (c *Committer) Begin() {
	c.tx = nil
}

// Add takes the transaction's next event and the key that the event's record has in the topic. When a chunk is full, it returns it; the chunk
// is valid until the next call.
//
// A transaction with a replication origin may name a month whose key was destroyed: nothing is committed to then.
func (c *Committer) Add(e *evidence.Event, published []byte) (full *Chunk, err error) {
	at := e.Tx.Position(e.Ordinal)
	if c.tx == nil {
		if err := c.open(e, at); err != nil {
			return nil, err
		}
	}
	if c.destroyed {
		return nil, nil
	}
	if like := (alike{e.Table, e.Op, e.Cause}); like != c.like || c.facts == 0 {
		c.like = like
		c.middle(e)
	}
	salt := c.secret.salt(e.Ordinal)
	b := c.leaf[:c.facts]
	copy(b[1:], salt[:])
	binary.BigEndian.PutUint32(b[ordinalAt:], e.Ordinal)
	c.ident = evidence.AppendIdentity(c.ident[:0], e.Keys, c.form)
	b = appendText(b, c.ident)
	if !e.Hashed {
		published = nil
	}
	c.leaf = appendText(b, published)
	commitment := tlog.Hash(sha256.Sum256(c.leaf))
	c.tree.Add(commitment)
	if c.tree.Size() == 1 {
		c.single = commitment // Add stores it only if a second event follows
		return nil, nil
	}
	if c.tree.Size() == 2 {
		c.chunk.add(c.first, c.single)
	}
	c.chunk.add(e.Ordinal, commitment)
	if c.chunk.rows < maxChunk {
		return nil, nil
	}
	return c.take(), nil
}

// ordinalAt is the offset of the ordinal in a leaf.
const ordinalAt = 1 + sha256.Size + 1 + 8 + 4 + 4 + 4 + 8

// open begins a transaction with its first event.
func (c *Committer) open(e *evidence.Event, at replication.Position) error {
	if t := e.Tx.CommitTime; c.epoch == "" || t.Before(c.from) || !t.Before(c.to) {
		if err := c.turn(schemas.EpochOf(t)); err != nil {
			return err
		}
	}
	if c.tx = e.Tx; c.destroyed {
		return nil
	}
	source := &c.route.Source
	c.secret.begin(source.SystemIdentifier, source.DatabaseOID, at)
	c.first, c.facts = e.Ordinal, 0
	c.tree.Reset()
	c.chunk.begin(at)
	return nil
}

// turn switches to the key of a month.
func (c *Committer) turn(epoch schemas.Epoch) error {
	named, ok := c.route.RowsKey(epoch)
	key := c.keys[epoch]
	destroyed := c.route.Destroyed(epoch)
	if !destroyed && (!ok || key.Fingerprint() != named.Fingerprint) {
		return &NoKeyError{epoch}
	}
	c.destroyed = destroyed
	c.epoch, c.from, c.to = epoch, epoch.Begin(), epoch.Next().Begin()
	c.secret.mac = hmac.New(sha256.New, key)
	return nil
}

// middle writes the bytes that the leaves of like events share, up to the identity.
func (c *Committer) middle(e *evidence.Event) {
	b := append(c.leaf[:0], make([]byte, 1+sha256.Size)...)
	b = appendPlace(b, c.route.Source.SystemIdentifier, c.route.Source.DatabaseOID, e.Tx.Position(0))
	b = append(b, 0, 0, 0, 0)
	b = appendText(appendText(appendText(b, tableIn(e.Table, c.form)), e.Op.String()), e.Cause.String())
	c.leaf, c.facts = b, len(b)
}

// tableIn converts a table's name to UTF-8, as event headers have it.
func tableIn(table string, form evidence.TextForm) string {
	if form == evidence.UTF8Text {
		return table
	}
	return string(evidence.AppendPlain(nil, table, form))
}

// Destroyed returns the month of the present transaction if its key was destroyed, so that its record has no root; empty otherwise.
func (c *Committer) Destroyed() schemas.Epoch {
	if c.tx == nil || !c.destroyed {
		return ""
	}
	return c.epoch
}

// Commit ends the transaction. It returns the root for the transaction's record, or nil if the transaction has no event or no key, and the
// last chunk, or nil if there is none.
func (c *Committer) Commit() (*evidence.RowsRoot, *Chunk) {
	if c.tx == nil || c.destroyed {
		c.tx = nil
		return nil, nil
	}
	root := c.tree.Root()
	c.tx = nil
	return &evidence.RowsRoot{Epoch: c.epoch, Count: uint64(c.tree.Size()), First: c.first, Root: root[:]}, c.take()
}

func (c *Committer) take() *Chunk {
	if c.chunk.rows == 0 {
		return nil
	}
	return c.chunk.take()
}
