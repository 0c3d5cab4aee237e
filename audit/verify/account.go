package verify

import (
	"cmp"
	"errors"
	"fmt"
	"io"

	"lapse/audit/evidence"
	"lapse/replication"
	"lapse/schemas"
)

// Account compares the records of the log with the events and with the commitments to them, transaction by transaction: the events of each table, operation and
// cause must be as many as the record says, each at an ordinal that the record commits to, and the commitments must be those of the record's root. With the keys
// of the months it computes the commitments again from the events.
//
// It reads all three once, side by side, in their order. Its memory does not grow with them.
type Account struct {
	System string            // the topic of policies' deletes
	Events []*Stream         // the partitions of both topics
	Proofs *Stream           // the proof store; nil: there is none
	Keys   schemas.EpochKeys // without them events are not compared with commitments
	// Lost are the topics that have lost records, by a gap of the log, and up to where.
	Lost map[string]evidence.Reach

	// Results.
	Transactions int // transactions whose events were counted
	Rooted       int // those of them whose root was computed again
	Opened       int // events that were compared with their commitments
	Forgotten    int // transactions whose events are gone through retention, or a loss that the log records
	Unrooted     int // transactions whose commitments are gone from the store
	Rootless     int // transactions that name a month whose key was destroyed, and so have no root
	Hidden       int // events whose commitments cannot be computed from them: their keys are hidden, long, or typed
	TakenBack    int // events without a record, above a rewind
	Beyond       int // events after the last record

	route   *evidence.Route
	pending *pending // nil: none
	rewind  bool     // there was a rewind since the transaction before
}

// Stream is one partition, record by record.
type Stream struct {
	Name  string // name for faults
	Topic string
	Cut   bool // its beginning is gone
	// Within says that events were before those that are read, and were counted.
	Within bool
	Next   func() (*schemas.Record, error)
	Line   func() int // the line of the record that Next returned last

	head  *schemas.Record
	at    replication.Position
	line  int
	ended bool
	first place // of its first event; the zero place where it has none
	begun bool
}

// Discrepancy is a place where log, events and commitments disagree.
type Discrepancy struct {
	Name string // name of a stream; empty: the log
	Line int
	Leaf int64 // the record of the log that it concerns; -1: none
	What string
}

func (d *Discrepancy) Error() string { return d.What }

// place is the place of a transaction.
type place struct {
	history  schemas.History
	timeline schemas.Timeline
	commit   schemas.LSN
}

func placeOf(p replication.Position) place { return place{p.History, p.Timeline, p.Commit} }

func (p place) compare(other place) int {
	return cmp.Or(cmp.Compare(p.history, other.history), cmp.Compare(p.timeline, other.timeline), cmp.Compare(p.commit, other.commit))
}

// fill reads the next event, unless it has one. It skips fences, markers, and foreign records.
func (s *Stream) fill(wanted func(*schemas.Record) bool) error {
	for s.head == nil && !s.ended {
		rec, err := s.Next()
		if errors.Is(err, io.EOF) {
			s.ended = true
			return nil
		}
		if err != nil {
			return err
		}
		at, err := evidence.EventPosition(rec)
		if rec.IsFence() || err != nil || !wanted(rec) {
			continue
		}
		s.head, s.at, s.line = rec, at, s.Line()
		if !s.begun && !s.Within {
			s.first, s.begun = placeOf(at), true
		}
	}
	return nil
}

// isEvent tells events from gaps and rewinds.
func isEvent(rec *schemas.Record) bool {
	op := rec.Header(schemas.HeaderOp)
	return op != evidence.Gap.String() && op != evidence.Rewind.String()
}

// kind is what a tally counts.
type kind struct {
	table, op, cause string
	cascade          bool
}

// pending is a transaction whose records are not all read yet: one that touched very many tables has several.
type pending struct {
	leaf    int64 // of the first
	record  *evidence.LogRecord
	content evidence.TransactionContent // with what all of them observed
}

// Resume begins within a log, before a record that goes on with no former one's transaction: with the route in force there, and whether a
// rewind came after the transaction before.
func (a *Account) Resume(route *evidence.Route, rewind bool) { a.route, a.rewind = route, rewind }

// Rewind reports whether a rewind came after the last transaction.
func (a *Account) Rewind() bool { return a.rewind }

// Ahead reports whether the event that was read last is still to be counted.
func (s *Stream) Ahead() bool { return s.head != nil }

// Begun reports whether there was an event.
func (s *Stream) Begun() bool { return s.begun || s.Within }

// Record accepts the log's next record.
func (a *Account) Record(leaf int64, r *evidence.LogRecord) error {
	c, is := r.Content.(*evidence.TransactionContent)
	if is && c.Further && a.pending != nil {
		a.pending.content.Observed = append(a.pending.content.Observed, c.Observed...)
		return nil
	}
	if err := a.Settle(); err != nil {
		return err
	}
	switch c := r.Content.(type) {
	case *evidence.RouteContent:
		route, err := r.Routing()
		if err != nil {
			return &Discrepancy{Leaf: leaf, What: "the route: " + err.Error()}
		}
		a.route = route
	case *evidence.MarkerContent:
		a.rewind = a.rewind || c.Marker.Op == evidence.Rewind
	case *evidence.TransactionContent:
		a.pending = &pending{leaf, r, *c}
	}
	return nil
}

// Settle compares the transaction whose records are all read.
func (a *Account) Settle() error {
	p := a.pending
	if p == nil {
		return nil
	}
	a.pending = nil
	if err := a.transaction(p.leaf, p.record, &p.content, place{p.record.History, p.record.Timeline, p.content.CommitLSN}); err != nil {
		return err
	}
	a.rewind = false
	return nil
}

// End checks that no event is left that should have a record in the log.
func (a *Account) End() error {
	if err := a.Settle(); err != nil {
		return err
	}
	for _, s := range a.Events {
		for {
			if err := s.fill(isEvent); err != nil {
				return err
			}
			if s.head == nil {
				break
			}
			a.Beyond++
			s.head = nil
		}
	}
	return a.drain()
}

// drain reads the store of commitments to its end, so that its reader can check the end.
func (a *Account) drain() error {
	s := a.Proofs
	for s != nil && !s.ended {
		s.head = nil
		if err := s.fill(func(*schemas.Record) bool { return true }); err != nil {
			return err
		}
	}
	return nil
}

// transaction compares a transaction.
func (a *Account) transaction(leaf int64, r *evidence.LogRecord, c *evidence.TransactionContent, at place) error {
	if a.route == nil {
		return &Discrepancy{Leaf: leaf, What: "there is no route before it"}
	}
	if err := a.passOver(at); err != nil {
		return err
	}
	t := &compared{Account: a, leaf: leaf, record: r, content: c, at: at, found: map[kind]uint64{}, form: evidence.TextFormOf(a.route.Source.Encoding)}
	if err := t.prepare(); err != nil {
		return err
	}
	for {
		s, err := a.nextOf(at)
		if err != nil {
			return err
		}
		if s == nil {
			break
		}
		if err := t.event(s); err != nil {
			return err
		}
		s.head = nil
	}
	return t.end()
}

// passOver skips the events before a transaction. The log has no record of them: they are foreign, unless a rewind says that they were published but never
// happened.
func (a *Account) passOver(at place) error {
	for _, s := range a.Events {
		for {
			if err := s.fill(isEvent); err != nil {
				return err
			}
			if s.head == nil || placeOf(s.at).compare(at) >= 0 {
				break
			}
			if !a.rewind || s.at.History == at.history && s.at.Timeline == at.timeline {
				return &Discrepancy{Name: s.Name, Line: s.line, Leaf: -1, What: fmt.Sprintf("the log has no record of the transaction at %s that this event is of", s.at.Commit)}
			}
			a.TakenBack++
			s.head = nil
		}
	}
	return nil
}

// nextOf returns the stream with the transaction's next event, by its ordinal; nil for none.
func (a *Account) nextOf(at place) (next *Stream, err error) {
	for _, s := range a.Events {
		if err := s.fill(isEvent); err != nil {
			return nil, err
		}
		if s.head != nil && placeOf(s.at) == at && (next == nil || s.at.Ordinal < next.at.Ordinal) {
			next = s
		}
	}
	return next, nil
}
