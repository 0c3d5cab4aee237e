package report

import (
	"slices"
	"strconv"
	"time"

	"lapse/audit/evidence"
)

// Bounds is the first of two passes over a log. It finds the period's limits, the counts of due rows, and what restores took back.
//
//	Bounds.Record, Checkpoint: each leaf, each checkpoint  ─▶ End ─▶ Count.Record: each leaf again ─▶ Count.Report
type Bounds struct {
	question Question
	clock    clock
	began    time.Time

	first, last, after int64 // leaves: the period's, and the first heartbeat after it; -1 for none
	opening, closing   *Checkpoint
	origin             *evidence.OriginContent
	head               *evidence.LogRecord
	newest             time.Time // the last heartbeat's time

	snapshots map[int64][]*snapshot // by policy, in the log's order
	open      map[string]*snapshot  // by id, until it is counted
	rewinds   []*marked
	gaps      []*marked
	marks     []*marked // the rewinds and gaps that no heartbeat has followed yet

	beat      int64     // the last heartbeat's leaf
	beatAt    time.Time // the last heartbeat's time
	latest    time.Time // the latest time of a transaction since then
	limits    []limit
	stretches []limit // the limits that the previous pass found
}

// snapshot is a count, with its place in the log.
type snapshot struct {
	Snapshot
	policy  int64
	taken   int64 // leaf; -1 for none
	counted int64 // leaf; -1 for none
	before  bool  // it was counted before the period
	within  bool
	seen    visibility
	oldest  *int64 // see evidence.DueCounts.OldestOver
}

// marked is a gap or a rewind. It concerns the time between the heartbeats around it.
type marked struct {
	leaf   int64
	marker *evidence.Marker
	after  time.Time // the time of the heartbeat before it
	within bool      // part of that time is in the period
}

// topic reports whether only a topic of events lost records: the log still has all of its own.
func (m *marked) topic() bool { return m.marker.Reason == evidence.ReasonTopic }

// NewBounds begins the pass.
func NewBounds(q Question) (*Bounds, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	return &Bounds{question: q, first: -1, last: -1, after: -1, snapshots: map[int64][]*snapshot{}, open: map[string]*snapshot{}}, nil
}

// Record takes the log's next leaf; r is nil if it cannot be read.
func (b *Bounds) Record(leaf int64, r *evidence.LogRecord) {
	before := b.clock.now
	at, _ := b.clock.place(leaf, r)
	if b.began.IsZero() {
		b.began = at
	}
	if r == nil {
		return
	}
	if b.head == nil {
		b.head = r
	}
	b.date(leaf, r)
	q := &b.question
	within := !at.Before(q.From) && at.Before(q.To)
	switch {
	case within:
		if b.first < 0 {
			b.first = leaf
		}
		b.last, b.after, b.closing = leaf, -1, nil
	case b.after < 0 && r.Heartbeat != nil && !at.Before(q.To):
		b.after = leaf
	}
	if r.Heartbeat != nil {
		b.newest = at
	}
	switch c := r.Content.(type) {
	case *evidence.OriginContent:
		if b.origin == nil {
			b.origin = c
		}
	case *evidence.SnapshotContent:
		b.snapshot(leaf, c, at.Before(q.From), within)
	case *evidence.MarkerContent:
		m := &marked{leaf: leaf, marker: c.Marker, after: before}
		b.marks = append(b.marks, m)
		if c.Marker.Op == evidence.Rewind {
			b.rewinds = append(b.rewinds, m)
		} else {
			b.gaps = append(b.gaps, m)
		}
	}
	if r.Heartbeat != nil {
		for _, m := range b.marks {
			m.within = m.after.Before(q.To) && !at.Before(q.From)
		}
		b.marks = b.marks[:0]
	}
}

// date finds transactions that name a later time than the heartbeat after them.
func (b *Bounds) date(leaf int64, r *evidence.LogRecord) {
	if r.Heartbeat != nil {
		at := r.Heartbeat.At
		if back := at.Before(b.beatAt.Add(-nearClock)); back || b.latest.After(at.Add(nearCommits)) {
			b.limits = append(b.limits, limit{b.beat, leaf, at, back})
		}
		b.beat, b.beatAt, b.latest = leaf, at, time.Time{}
		return
	}
	if c, is := r.Content.(interface{ Transaction() *evidence.Committed }); is && c.Transaction().CommitTime.After(b.latest) {
		b.latest = c.Transaction().CommitTime
	}
}

// Misdated reports whether the pass must be repeated with Again, because transactions name later times than the heartbeats after them.
func (b *Bounds) Misdated() bool { return len(b.limits) > len(b.stretches) }

// Again begins the pass once more, now with the limits that this pass found.
func (b *Bounds) Again() *Bounds {
	again, _ := NewBounds(b.question)
	again.clock.limits, again.stretches = b.limits, b.limits
	return again
}

// Checkpoint takes a verified checkpoint. Checkpoints come in the order of their sizes.
func (b *Bounds) Checkpoint(c Checkpoint) {
	if b.first < 0 || c.Records <= b.first {
		b.opening = &c
	}
	if b.closing == nil && b.after >= 0 && c.Records > b.after {
		b.closing = &c
	}
}

// snapshot takes one of a count's three records.
func (b *Bounds) snapshot(leaf int64, c *evidence.SnapshotContent, before, within bool) {
	id := c.Snapshot.String()
	s := b.open[id]
	if s == nil {
		if c.Step != "begun" {
			return
		}
		b.forget(c.PolicyID, c.Version)
		s = &snapshot{Snapshot: Snapshot{ID: id, Version: c.Version, Begun: At(c.At), Leaf: leaf}, policy: c.PolicyID, taken: -1, counted: -1, before: before, within: within}
		b.open[id] = s
		b.snapshots[c.PolicyID] = append(b.snapshots[c.PolicyID], s)
		return
	}
	switch c.Step {
	case "taken":
		s.Taken, s.Cutoff, s.Seen, s.Leaf, s.taken = At(c.At), At(c.Cutoff), c.Seen, leaf, leaf
		s.seen = newVisibility(c.Seen)
	case "counted":
		s.Counted, s.counted, s.before, s.within = At(c.At), leaf, before, within
		if n := c.Counted; n != nil && s.taken >= 0 {
			s.Due, s.Overdue, s.Held, s.Quarantined, s.oldest = n.Due, n.Overdue, n.Held, n.Quarantined, n.OldestOver
		} else if s.NotCounted = c.NotCounted; s.NotCounted == "" {
			s.NotCounted = "the log does not have its snapshot"
		}
		delete(b.open, id)
	}
}

// forget drops the counts before the period that a later one replaces, and those that never ended, so that memory grows with the period and not
// with the log.
func (b *Bounds) forget(policy, version int64) {
	all := b.snapshots[policy]
	var last *snapshot
	for _, s := range all {
		if s.before && s.whole() {
			last = s
		}
	}
	b.snapshots[policy] = slices.DeleteFunc(all, func(s *snapshot) bool {
		return s.before && s != last && (s.counted >= 0 || s.Version == version)
	})
	for id, s := range b.open {
		if s.policy == policy && s.before && s.Version == version {
			delete(b.open, id) // its executor died before it had counted
		}
	}
}

// whole reports whether the count can be an end of a roll-forward.
func (s *snapshot) whole() bool {
	return s.taken >= 0 && s.counted >= 0 && s.NotCounted == "" && s.seen.ok
}

// ends returns the counts at the two ends of a policy's roll-forward: the last one before the period, or else the first one in it, and the last one
// in it, which may be the same. So the roll-forwards of consecutive periods are contiguous.
func (b *Bounds) ends(policy int64) (start, end *snapshot) {
	for _, s := range b.snapshots[policy] {
		switch {
		case !s.whole():
		case s.before:
			start = s
		case s.within:
			if start == nil {
				start = s
			}
			end = s
		}
	}
	return start, end
}

// End returns an error if the log cannot answer for the period.
func (b *Bounds) End() error {
	q := &b.question
	switch {
	case b.origin == nil:
		return noPeriod("the log does not begin with its origin")
	case b.began.IsZero():
		return noPeriod("the log has no record with a time yet: nothing can be said of a period")
	case !b.began.Before(q.To):
		return noPeriod("the log began at %s, after the period: nothing is known of it", At(b.began))
	case q.From.Before(b.began):
		return noPeriod("the log began at %s, and the period begins at %s: nobody read what happened in between. Ask from %s on, or --from begin", At(b.began), At(q.From), At(b.began))
	case b.newest.IsZero():
		return noPeriod("the log has no heartbeat of an auditor yet: the first one comes within a minute")
	case b.newest.Before(q.To):
		return noPeriod("the period ends at %s, and the log has come to %s: it is not over. Ask up to that time", At(q.To), At(b.newest))
	case b.after < 0 || b.closing == nil:
		return noPeriod("no checkpoint signs the log to the end of the period yet: the auditor writes one within half a minute")
	case b.first < 0:
		return noPeriod("the log has no record of the period from %s to %s: no auditor ran in it", At(q.From), At(q.To))
	}
	return nil
}

// origins returns what the log's origin and first record say about the log.
func (b *Bounds) origins() Log {
	return Log{
		PublicKey: b.origin.PublicKey, SystemIdentifier: strconv.FormatUint(b.head.SystemIdentifier, 10), Database: b.head.Database, DatabaseOID: b.head.DatabaseOID,
		Opening: b.opening, Closing: *b.closing, FirstLeaf: b.first, BeganAt: At(b.began),
	}
}

// between reports whether a gap or a rewind lies between two counts.
func (b *Bounds) between(start, end *snapshot) Reason {
	inside := func(leaf int64) bool { return leaf > start.taken && leaf < end.counted }
	for i := range b.rewinds {
		if inside(b.rewinds[i].leaf) {
			return AcrossRewind
		}
	}
	for i := range b.gaps {
		if !b.gaps[i].topic() && inside(b.gaps[i].leaf) {
			return InGap
		}
	}
	return ""
}
