package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"lapse/audit/evidence"
	"lapse/audit/kafka"
	"lapse/replication"
)

// comparison holds what the slot sends again against what the log has. It reads the stream up to the log's end, and beyond
// it while a partition has events that the log has no record of yet. It publishes and confirms nothing.
type comparison struct {
	stream    *replication.Stream
	identity  replication.Identity
	client    *kafka.Client
	route     *evidence.Route
	assembler *evidence.Assembler
	router    *evidence.Router
	past      *past
	walk      *walk
	markers   []evidence.Marker // that this start is about to write

	reader *kafka.Reader
	next   *evidence.LogRecord // the next record of a transaction or a heartbeat; nil at the end
	until  evidence.Reach      // up to where log and stream are compared
	unmet  []*unmet            // tails above the log's end

	same    evidence.Reach // up to where both are the same
	matched evidence.Reach // up to the last record of a transaction or a heartbeat that both have
	differs string         // in what they differ first; empty if in nothing
	// pending is the last message of the stream, where nothing above the log's end was read: the relay begins with it. Where
	// more was read, beyond is set, and the stream must be opened again.
	pending *replication.Message
	beyond  bool
}

// unmet is a tail above the log's end that the stream has not come to.
type unmet struct {
	topic     string
	partition int32
	tail      *tail
}

// compare runs the comparison. A difference is no error: see differs.
func (c *comparison) compare(ctx context.Context) error {
	c.reader = c.client.Reader(c.route.Log.Name, 0, c.walk.from, c.past.at+1)
	c.until = c.past.end.Reach
	c.until.History = 0
	if at, left := c.identity.Ancestry.End(c.until.Timeline); left && at < c.until.LSN {
		c.until.LSN = at // beyond it another server went on
	}
	if written := (evidence.Reach{Timeline: c.identity.Timeline, LSN: c.identity.Flushed}); written.Below(c.until) {
		c.until = written
	}
	c.same = evidence.Reach{
		History: c.past.origin.Reach.History, Timeline: c.identity.TimelineOf(c.stream.StartedAt()), LSN: c.stream.StartedAt(),
	}
	if c.walk.before != nil {
		c.same.History = c.walk.before.Reach.History
	}
	c.matched = c.same
	if err := c.findUnmet(); err != nil {
		return err
	}
	if err := c.advance(ctx); err != nil {
		return err
	}
	for !c.finished() {
		m, err := c.stream.Next(ctx)
		if err != nil {
			return fmt.Errorf("compare the log with what the slot sends: %w", err)
		}
		if err := c.take(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// finished says whether all has been compared.
func (c *comparison) finished() bool {
	return c.differs != "" || len(c.unmet) == 0 && (c.pending != nil || !c.same.Below(c.until) && c.next == nil)
}

// findUnmet lists the tails above the log's end. A tail is what the relay takes for the last event that is there, so one that
// is not proven would hide what is really deleted below it: it is a marker that this start writes, or lost with a timeline
// that this start takes back, or the stream meets it; or else it is foreign. What the server cannot have sent is foreign at
// once: another history, a timeline it was never on, a position beyond what it has written.
func (c *comparison) findUnmet() error {
	for _, topic := range []evidence.Topic{c.route.System, c.route.User} {
		tails := c.past.tails[topic.Name]
		for partition := range tails {
			t := &tails[partition]
			at := evidence.ReachOf(t.position)
			if at.Compare(c.past.end.Reach) < 0 || t.position == (replication.Position{}) || c.plans(t) || c.takesBack(t) {
				continue
			}
			if why := c.impossible(at); why != "" {
				return c.foreign(topic.Name, int32(partition), t, why)
			}
			// Below a slot that was made anew lies what the log has no record of, and a gap goes over it. Nothing below the slot is sent.
			if !at.Below(c.same) {
				c.unmet = append(c.unmet, &unmet{topic: topic.Name, partition: int32(partition), tail: t})
			}
		}
	}
	return nil
}

// impossible says why the server cannot have sent something at this place; empty if it can.
func (c *comparison) impossible(at evidence.Reach) string {
	end, left := c.identity.Ancestry.End(at.Timeline)
	switch {
	case at.History != c.past.end.Reach.History:
		return fmt.Sprintf("the database is in history %d", c.past.end.Reach.History)
	case left && at.LSN >= end:
		return fmt.Sprintf("the server left timeline %d at %s", at.Timeline, end)
	case !left && at.Timeline != c.identity.Timeline:
		return fmt.Sprintf("the server, on timeline %d, never was on timeline %d", c.identity.Timeline, at.Timeline)
	case !left && at.LSN >= c.identity.Flushed:
		return "the server has written no more than " + c.identity.Flushed.String()
	default:
		return ""
	}
}

// foreign refuses a tail that this database never wrote.
func (c *comparison) foreign(topic string, partition int32, t *tail, why string) error {
	return refuse(ErrForeignTail, "%s/%d ends with an event at %s: %s",
		"find out who wrote it; lapse history accept --reason TEXT goes on above it, by another history",
		topic, partition, t.position, why)
}

// advance reads the log on to its next record of a transaction or a heartbeat, as far as what it says happened.
func (c *comparison) advance(ctx context.Context) error {
	c.next = nil
	return c.stream.During(ctx, func(ctx context.Context) error {
		for c.next == nil {
			if err := c.readRecord(ctx); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *comparison) readRecord(ctx context.Context) error {
	rec, offset, err := c.reader.Next(ctx)
	if err != nil {
		return err
	}
	record, err := logRecordOf(&rec, c.route)
	if err != nil || record == nil || c.walk.dead(offset, record) || !c.same.Below(record.Reach) || c.until.Below(record.Reach) {
		return err
	}
	if record.Kind == evidence.KindTransaction || record.Heartbeat != nil {
		c.next = record
	}
	return nil
}

func (c *comparison) take(ctx context.Context, m *replication.Message) error {
	switch m.Kind {
	case replication.KindBegin:
		at := evidence.Reach{Timeline: m.Tx.Timeline, LSN: m.Tx.CommitLSN}
		if !at.Below(c.until) {
			if c.next != nil {
				c.missing()
				return nil
			}
			c.cover()
			if len(c.unmet) == 0 {
				c.pending = &replication.Message{Kind: m.Kind, Tx: m.Tx, Open: true}
				return nil
			}
			c.beyond = true
			m.Tx.History = c.past.end.Reach.History
		}
		c.assembler.Begin(m.Tx)
		return nil
	case replication.KindChange:
		c.assembler.Change(m.Change)
		return c.meetEvents()
	case replication.KindCommit:
		account := c.assembler.Commit(m.Tx, noSurroundings).Account
		if err := c.meetEvents(); err != nil {
			return err
		}
		if c.beyond {
			c.meetGap(m.Tx, account)
			return nil
		}
		return c.commit(ctx, m.Tx, account)
	default:
		return c.keepalive(m)
	}
}

// commit compares a transaction that ends below the log's end.
//
// Of a transaction with several records the log's first is compared: the others say more of the same one. Where the log's
// end lacks some of them the relay must see the transaction too.
func (c *comparison) commit(ctx context.Context, tx *replication.Tx, account *evidence.Account) error {
	recorded, beat := account.Recorded(), account.Heartbeat
	if !recorded && beat == nil {
		return nil // the log has no record of it, or another one in its place: then that one is missing
	}
	next := c.next
	switch {
	case next == nil, evidence.EndOf(tx).Below(next.Reach):
		c.differs = fmt.Sprintf("the database has a transaction at %s, of %s, that the log does not have",
			tx.CommitLSN, tx.CommitTime.Format("2006-01-02 15:04:05.000000 UTC"))
		return nil
	case next.Reach.Below(evidence.EndOf(tx)):
		c.missing()
		return nil
	case recorded && (next.Kind != evidence.KindTransaction || next.XID != tx.XID || next.CommitLSN != tx.CommitLSN || !next.CommitTime.Equal(tx.CommitTime)),
		!recorded && (next.Heartbeat == nil || next.Heartbeat.Nonce != beat.Nonce):
		c.differs = fmt.Sprintf("at %s the log has another transaction than the database", tx.CommitLSN)
		return nil
	}
	c.same = next.Reach
	if c.past.partial(next) {
		c.beyond = true
	} else {
		c.matched = next.Reach
	}
	return c.advance(ctx)
}

// cover says that all up to the end was compared.
func (c *comparison) cover() {
	if c.same.Below(c.until) {
		c.same.LSN, c.same.Timeline = c.until.LSN, c.until.Timeline
	}
}

// missing says that the log has what the database does not send.
func (c *comparison) missing() {
	c.differs = fmt.Sprintf("the log has a record that reaches %s, and the database has nothing there", c.next.Reach.LSN)
}

// keepalive learns how far the server has read.
func (c *comparison) keepalive(m *replication.Message) error {
	at := evidence.Reach{Timeline: c.identity.TimelineOf(m.WALEnd), LSN: m.WALEnd}
	if m.Open || at.Below(c.until) {
		return nil
	}
	if c.next != nil {
		c.missing()
		return nil
	}
	c.cover()
	for _, u := range c.unmet {
		if evidence.ReachOf(u.tail.position).Below(at) {
			return c.foreign(u.topic, u.partition, u.tail, "the database has nothing there")
		}
	}
	if len(c.unmet) == 0 {
		c.pending = &replication.Message{Kind: m.Kind, WALEnd: m.WALEnd}
	}
	return nil
}

// noSurroundings are those of a comparison, which writes no record.
func noSurroundings() *evidence.Surroundings { return nil }

// meetEvents looks whether events above the log's end are among the tails that the log has no record of.
func (c *comparison) meetEvents() error {
	for e := c.assembler.Next(); e != nil; e = c.assembler.Next() {
		if !c.beyond {
			continue
		}
		routed := c.router.Route(e)
		for _, partition := range routed.Partitions {
			rec := &kafka.Record{Topic: routed.Topic, Partition: partition, Key: routed.Key, Value: routed.Value}
			if err := c.met(e.Tx.Position(e.Ordinal), rec); err != nil {
				return err
			}
		}
	}
	return nil
}

// meetGap is meetEvents for the gaps that stand with a heartbeat.
func (c *comparison) meetGap(tx *replication.Tx, account *evidence.Account) {
	if account.Heartbeat == nil {
		return
	}
	// A gap that only the former process knew of, such as a topic's, stands with a heartbeat too, and looks like this one.
	c.unmet = slices.DeleteFunc(c.unmet, func(u *unmet) bool {
		at := u.tail.position
		return headerOf(&u.tail.record, evidence.HeaderOp) == evidence.Gap.String() && at == tx.Position(at.Ordinal)
	})
}

// met takes the tail that this record is from the list.
func (c *comparison) met(position replication.Position, rec *kafka.Record) error {
	for i, u := range c.unmet {
		if u.topic != rec.Topic || u.partition != rec.Partition || position.Compare(u.tail.position) < 0 {
			continue
		}
		if position != u.tail.position || !bytes.Equal(u.tail.record.Value, rec.Value) || !bytes.Equal(u.tail.record.Key, rec.Key) {
			return c.foreign(u.topic, u.partition, u.tail, "the database has another event there, or none")
		}
		c.unmet = append(c.unmet[:i:i], c.unmet[i+1:]...)
		return nil
	}
	return nil
}

// takesBack says whether a tail was published on a timeline that a rewind of this start ends below it: the transaction is
// lost with the rest, and nothing of that timeline is published any more.
func (c *comparison) takesBack(t *tail) bool {
	for i := range c.markers {
		m := &c.markers[i]
		if m.Op == evidence.Rewind && t.position.History == m.From.History && t.position.Timeline < m.At.Timeline && !evidence.ReachOf(t.position).Below(m.From) {
			return true
		}
	}
	return false
}

// plans says whether a tail is a marker that this start is about to write.
func (c *comparison) plans(t *tail) bool {
	for i := range c.markers {
		if m := &c.markers[i]; m.At == t.position {
			return bytes.Equal(c.router.MarkerValue(m), t.record.Value)
		}
	}
	return false
}
