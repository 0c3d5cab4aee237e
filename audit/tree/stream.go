package tree

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"lapse/schemas"
)

// Stream verifies a log while reading its topic, record by record, in memory that does not grow with the log. It checks that every record is
// a leaf of one tree and that every checkpoint signs that tree at its size. If not, it returns a *Fault.
type Stream struct {
	Place    string // names the topic in faults
	Verifier note.Verifier
	// Key is the log's key, if the reader has it: Stream then ignores every record that the key did not link or seal. Without it,
	// Stream skips what the public key does not verify, and an inserted record shows as another tree.
	Key *Key
	// Known are checkpoints that the reader has from another source.
	Known [][]byte
	// Witnesses and Quorum: see Folder.
	Witnesses []*Witness
	Quorum    int
	// Signed, if not nil, is called with each checkpoint that fits, in order.
	Signed func(Checkpoint)

	keys   *Succession
	reader Reader
	behind edge // the tree of the last checkpoint
	ahead  []aheadLeaf
	seen   *seen
	known  former
	clock  time.Time // of the last fence
	found  Streamed
	roots  []Checkpoint // the last ones that fit: their cosignatures come later
}

// aheadLeaf is a leaf that no checkpoint has signed yet.
type aheadLeaf struct {
	hash tlog.Hash
	at   time.Time // the earliest time at which it was appended
}

// mostAhead bounds the leaves that Stream keeps until a checkpoint signs them. An auditor signs every half minute, and far fewer leaves come
// while it waits for the brokers.
const mostAhead = 1 << 18

// Streamed is the result for a log without faults.
type Streamed struct {
	Newest      *Checkpoint // nil if the log has none
	Note        []byte      // of the newest, with its cosignatures if it has any
	Records     int64       // leaves, signed or not
	Checkpoints int         // those that fit
	Unchecked   int         // checkpoints that came too late to be compared
	Known       int
	Foreign     int // records that others wrote
	Seen        []Seen
	Cosigned    int64

	// Late counts the checkpoints that came more than half a minute after a record that they sign. Longest is the longest such time,
	// and LongestLeaf the record.
	Late        int
	Longest     time.Duration
	LongestLeaf int64

	value []byte // the newest checkpoint's record
}

// Begin begins at the log's first record, or after a checkpoint that Streamed.State returned. from is the offset to read from.
func (s *Stream) Begin(state []byte) (from int64, err error) {
	s.reader.Tree, s.seen, s.found.LongestLeaf = New(s.Key), newSeen(s.Witnesses, s.Quorum), -1
	s.keys = &Succession{Verifier: s.Verifier, keys: []note.Verifier{s.Verifier}}
	if state != nil {
		if from, err = s.resume(state); err != nil {
			return 0, err
		}
	}
	s.behind = s.reader.Tree.edge.clone()
	known := &Folder{Known: s.Known, Verifier: s.Verifier}
	if err := s.known.list(known, &Checkpoint{Size: 1<<63 - 1}, s.Key); err != nil {
		return 0, err
	}
	s.known.file = s.Place
	for s.known.ahead != nil && s.known.ahead.Size < s.behind.size { // the former verification compared it, or no one can any more
		if err := s.known.advance(); err != nil {
			return 0, err
		}
	}
	return from, s.known.reached(&s.behind)
}

// resume restores a checkpoint. It verifies the signature, and that the edge belongs to the signed tree.
func (s *Stream) resume(state []byte) (from int64, err error) {
	var c checkpointJSON
	if err := json.Unmarshal(state, &c); err != nil || c.Kind != KindCheckpoint {
		return 0, errors.New("the state of a former verification: it has no checkpoint")
	}
	signed, by, err := openAny([]byte(c.Note), s.Verifier, s.Key)
	if err == nil {
		_, err = s.seen.open([]byte(c.Note), by)
	}
	if err != nil {
		return 0, fmt.Errorf("the state of a former verification: %w", err)
	}
	s.keys.keys, s.keys.known = []note.Verifier{by}, by == s.Verifier || s.Key != nil
	t := s.reader.Tree
	if t.edge = (edge{signed.Size, c.Edge}); !t.edge.fits() || t.edge.root() != signed.Root {
		return 0, errors.New("the state of a former verification: it is of another tree than its checkpoint signs")
	}
	if s.Key != nil {
		again, _, ours := s.Key.Resume(state)
		if !ours {
			return 0, errors.New("the state of a former verification: the key named log has not sealed it")
		}
		t.link, t.key = again.link, again.key
	}
	s.reader.Signed = signed.Size
	s.found.Newest, s.found.Note, s.found.value = signed, []byte(c.Note), state
	s.roots = []Checkpoint{*signed}
	return c.Offset, nil
}

// State is the newest checkpoint in the form that Begin takes; nil if the log has none.
func (s *Streamed) State() []byte { return s.value }

// Record takes the topic's next record. isRecord says whether it looks like one of the log's. leaf is its number, or -1 if it is not a leaf.
func (s *Stream) Record(rec *schemas.Record, offset int64, isRecord bool) (leaf int64, err error) {
	if rec.IsFence() {
		s.clock = rec.Time
		if signed, ok := NoteIn(rec.Value); ok {
			return -1, s.checkpoint(rec, signed, offset)
		}
		if signed, ok := CosignedIn(rec.Value); ok {
			return -1, s.cosigned(rec, signed, offset)
		}
		return -1, nil
	}
	if s.reader.Tree.edge.size == 0 && isRecord {
		s.begins(rec)
	}
	t := s.reader.Tree
	if !isRecord || !s.reader.Take(rec) {
		return -1, nil
	}
	if r, err := rotationIn(rec.Value); err != nil || r != nil {
		if err == nil {
			err = s.keys.rotate(t.edge.size-1, r)
		}
		if err != nil {
			return -1, fault(s.Place, t.edge.size-1, "%v", err)
		}
	}
	if s.ahead = append(s.ahead, aheadLeaf{t.newest, s.clock}); len(s.ahead) > mostAhead {
		if err := s.advance(s.behind.size + mostAhead/2); err != nil {
			return -1, err
		}
	}
	return t.edge.size - 1, nil
}

// begins takes the key that the log's first record names. If Key does not include it, Stream reads the log with public keys only.
func (s *Stream) begins(rec *schemas.Record) {
	public := originKey(rec.Value)
	if s.keys.begin(public) != nil {
		return // not a key: no checkpoint will verify
	}
	if s.Key != nil && public != "" && s.Key.of(public) == nil {
		s.Key, s.reader.Tree = nil, New(nil)
	}
}

// advance grows the tree behind to a size.
func (s *Stream) advance(size int64) error {
	n := size - s.behind.size
	for i := range n {
		s.behind.add(s.ahead[i].hash)
		if err := s.known.reached(&s.behind); err != nil {
			return err
		}
	}
	s.ahead = append(s.ahead[:0], s.ahead[n:]...)
	return nil
}

// foreign counts a record that the auditor did not write.
func (s *Stream) foreign() error {
	s.found.Foreign++
	return nil
}

func (s *Stream) checkpoint(rec *schemas.Record, signed []byte, offset int64) error {
	if s.Key != nil {
		if _, _, ours := s.Key.Resume(rec.Value); !ours {
			return s.foreign()
		}
	}
	c, err := s.seen.open(signed, s.keys)
	if err != nil {
		return s.foreign()
	}
	place := fmt.Sprintf("offset %d", offset)
	switch n := s.found.Newest; {
	case n != nil && c.Size < n.Size:
		return s.foreign() // a copy: the auditor's checkpoints grow
	case n != nil && c.Size == n.Size && c.Root == n.Root:
		return nil
	case c.Size > s.reader.Tree.edge.size:
		return fault(s.Place, s.reader.Tree.edge.size, "%s: the checkpoint signs %d records, and %d are before it: some are missing, or are not as they were signed", place, c.Size, s.reader.Tree.edge.size)
	case c.Size < s.behind.size:
		s.found.Unchecked++
		return nil
	}
	s.late(c.Size, rec.Time)
	before := s.behind.size
	if err := s.advance(c.Size); err != nil {
		return err
	}
	if s.behind.root() != c.Root {
		return fault(s.Place, before, "%s: the checkpoint signs another tree of %d records: some record from this leaf on is not as it was signed, or the key has signed two logs", place, c.Size)
	}
	s.found.Newest, s.found.Note, s.found.value = c, signed, rec.Value
	s.found.Checkpoints++
	if s.Signed != nil {
		s.Signed(*c)
	}
	if s.roots = append(s.roots, *c); len(s.roots) > mostWaiting {
		s.roots = s.roots[1:]
	}
	return nil
}

// late records how long the first of a checkpoint's new records waited for the checkpoint.
func (s *Stream) late(size int64, at time.Time) {
	if size == s.behind.size || s.ahead[0].at.IsZero() {
		return
	}
	waited := at.Sub(s.ahead[0].at)
	if waited > CheckpointWithin {
		s.found.Late++
	}
	if waited > s.found.Longest {
		s.found.Longest, s.found.LongestLeaf = waited, s.behind.size
	}
}

// CheckpointWithin is the time within which a running auditor signs each record.
const CheckpointWithin = 30 * time.Second

func (s *Stream) cosigned(rec *schemas.Record, signed []byte, offset int64) error {
	if s.Key != nil && !s.Key.HasCosigned(rec.Value) {
		return s.foreign()
	}
	of, err := Open(signed, s.keys)
	if err != nil {
		return s.foreign()
	}
	fits := false
	for i := range s.roots {
		fits = fits || s.roots[i] == *of
	}
	if !fits {
		return nil // of a checkpoint from before the state, or one that came too late to be compared
	}
	if _, err := s.seen.open(signed, s.keys); err != nil {
		if s.Key == nil {
			return s.foreign()
		}
		return fault(s.Place, -1, "offset %d: %v", offset, err)
	}
	if *of == *s.found.Newest {
		s.found.Note = signed
	}
	return nil
}

// End returns the result, once the topic is read to its end.
func (s *Stream) End() (*Streamed, error) {
	if err := s.advance(s.reader.Tree.edge.size); err != nil {
		return nil, err
	}
	f := &s.found
	if f.Newest != nil && (!s.keys.known || f.Newest.Size < s.keys.from) {
		return nil, fault(s.Place, -1, "%v", errOtherKey)
	}
	f.Records, f.Known, f.Seen, f.Cosigned = s.behind.size, s.known.fit, s.seen.of, s.seen.cosigned
	f.Foreign += s.reader.Foreign
	if s.known.ahead != nil {
		return nil, fault(s.Place, f.Records, "a checkpoint that you have is of %d records: the log was cut, or this is an older copy", s.known.ahead.Size)
	}
	if s.Quorum > 0 && f.Cosigned == 0 {
		return nil, fault(s.Place, -1, "no checkpoint has cosignatures of %d of the %d witnesses", s.Quorum, len(s.Witnesses))
	}
	return f, nil
}
