package history

import (
	"context"
	"errors"
	"fmt"
	"io"

	"lapse/audit/evidence"
	"lapse/audit/store"
	"lapse/replication"
)

// comparison compares what the slot sends again with what the log has. It reads the stream up to the log's end, and further while a partition has
// events without a record in the log. It publishes and confirms nothing.
type comparison struct {
	stream    *replication.Stream
	identity  replication.Identity
	client    store.Client
	route     *evidence.Route
	assembler *evidence.Assembler
	router    *evidence.Router
	topics    *Topics
	walk      *walk
	markers   []evidence.Marker // the markers that this start is about to write
	noHashKey error             // why the router has no hash key, and must route no event

	reader    store.Reader
	next      *evidence.LogRecord // the next record of a transaction or a heartbeat; nil at the end
	until     evidence.Reach      // the position up to which log and stream are compared
	unmatched []*unmatchedTail    // tails above the log's end that the stream has not reached

	agreed     evidence.Reach // the position up to which both are the same
	lastMatch  evidence.Reach // the last record of a transaction or a heartbeat that both have
	difference string         // the first difference; empty if there is none

	firstMessage *replication.Message // see startingPoint
	readBeyond   bool                 // see startingPoint
}

// run makes the comparison. A difference is not an error: see difference.
func (c *comparison) run(ctx context.Context) error {
	c.begin()
	if err := c.findUnmatched(); err != nil {
		return err
	}
	if c.noHashKey != nil && (len(c.unmatched) > 0 || c.topics.isPartial(c.topics.LogEnd)) {
		return c.noHashKey
	}
	if err := c.nextRecord(ctx); err != nil {
		return err
	}
	for !c.finished() {
		m, err := c.stream.Next(ctx)
		if err != nil {
			return fmt.Errorf("compare the log with what the slot sends: %w", err)
		}
		if err := c.handle(ctx, m); err != nil {
			return err
		}
	}
	return nil
}

// begin finds the bounds of the comparison: the slot's position, and the last position that both can have.
func (c *comparison) begin() {
	c.reader = c.client.Reader(c.route.Log.Name, 0, c.walk.from, c.topics.logEndOffset+1)
	c.until = c.topics.LogEnd.Reach
	c.until.History = 0
	if at, left := c.identity.Ancestry.End(c.until.Timeline); left && at < c.until.LSN {
		c.until.LSN = at // another server continued above it
	}
	if written := (evidence.Reach{Timeline: c.identity.Timeline, LSN: c.identity.Flushed}); written.Below(c.until) {
		c.until = written
	}
	started := c.stream.StartedAt()
	c.agreed = evidence.Reach{History: c.topics.origin.Reach.History, Timeline: c.identity.TimelineOf(started), LSN: started}
	if c.walk.before != nil {
		c.agreed.History = c.walk.before.Reach.History
	}
	c.lastMatch = c.agreed
}

// finished reports whether everything was compared.
func (c *comparison) finished() bool {
	compared := c.firstMessage != nil || !c.agreed.Below(c.until) && c.next == nil
	return c.difference != "" || len(c.unmatched) == 0 && compared
}

// nextRecord reads the log up to its next record of a transaction or a heartbeat. It skips records that a rewind revoked.
func (c *comparison) nextRecord(ctx context.Context) error {
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
	if err != nil || record == nil || c.walk.dead(offset, record) || !c.agreed.Below(record.Reach) || c.until.Below(record.Reach) {
		return err
	}
	if transactionOf(record) != nil || record.Heartbeat != nil {
		c.next = record
	}
	return nil
}

func (c *comparison) handle(ctx context.Context, m *replication.Message) error {
	switch m.Kind {
	case replication.KindBegin:
		at := evidence.Reach{Timeline: m.Tx.Timeline, LSN: m.Tx.CommitLSN}
		if !at.Below(c.until) {
			if c.next != nil {
				c.recordMissing()
				return nil
			}
			c.agreeToEnd()
			if len(c.unmatched) == 0 {
				c.firstMessage = &replication.Message{Kind: m.Kind, Tx: m.Tx, Open: true}
				return nil
			}
			c.readBeyond = true
			m.Tx.History = c.topics.LogEnd.Reach.History
		}
		c.assembler.Begin(m.Tx)
		return nil
	case replication.KindChange:
		c.assembler.Change(m.Change)
		return c.matchEvents()
	case replication.KindCommit:
		account := c.assembler.Commit(m.Tx, nil).Account
		if err := c.matchEvents(); err != nil {
			return err
		}
		if c.readBeyond {
			c.matchGap(m.Tx, account)
			return nil
		}
		return c.compareTransaction(ctx, m.Tx, account)
	default:
		return c.keepalive(m)
	}
}

// compareTransaction compares a transaction that ends below the log's end with the log's next record.
//
// If the transaction has several records, it compares the first. If the log lacks some of the others, the relay must see the transaction too, and
// the stream is opened again.
func (c *comparison) compareTransaction(ctx context.Context, tx *replication.Tx, account *evidence.Account) error {
	recorded, beat := account.Recorded() || account.Catalog() && account.Heartbeat == nil, account.Heartbeat
	if !recorded && beat == nil {
		return nil // the log has no record of it, or another one instead: then the database lacks that one
	}
	next := c.next
	sameTransaction := next != nil && isOf(next, tx)
	sameHeartbeat := next != nil && beat != nil && next.Heartbeat != nil && next.Heartbeat.Nonce == beat.Nonce
	switch {
	case next == nil, evidence.EndOf(tx).Below(next.Reach):
		c.difference = fmt.Sprintf("the database has a transaction at %s, of %s, that the log does not have",
			tx.CommitLSN, tx.CommitTime.Format("2006-01-02 15:04:05.000000 UTC"))
		return nil
	case next.Reach.Below(evidence.EndOf(tx)):
		c.recordMissing()
		return nil
	case recorded && !sameTransaction, !recorded && !sameHeartbeat:
		c.difference = fmt.Sprintf("at %s the log has another transaction than the database", tx.CommitLSN)
		return nil
	}
	c.agreed = next.Reach
	if c.topics.isPartial(next) {
		c.readBeyond = true
	} else {
		c.lastMatch = next.Reach
	}
	return c.nextRecord(ctx)
}

// isOf reports whether a record is of a transaction.
func isOf(r *evidence.LogRecord, tx *replication.Tx) bool {
	c := transactionOf(r)
	return c != nil && c.XID == tx.XID && c.CommitLSN == tx.CommitLSN && c.CommitTime.Equal(tx.CommitTime)
}

// transactionOf returns the transaction that a record names; nil if it names none.
func transactionOf(r *evidence.LogRecord) *evidence.Committed {
	if c, is := r.Content.(interface{ Transaction() *evidence.Committed }); is {
		return c.Transaction()
	}
	return nil
}

// agreeToEnd records that everything up to the end agrees.
func (c *comparison) agreeToEnd() {
	if c.agreed.Below(c.until) {
		c.agreed.LSN, c.agreed.Timeline = c.until.LSN, c.until.Timeline
	}
}

// recordMissing records that the database does not send what the log has a record of.
func (c *comparison) recordMissing() {
	c.difference = fmt.Sprintf("the log has a record that reaches %s, and the database has nothing there", c.next.Reach.LSN)
}

// keepalive learns how far the server has read: nothing more will come below that position.
func (c *comparison) keepalive(m *replication.Message) error {
	at := evidence.Reach{Timeline: c.identity.TimelineOf(m.WALEnd), LSN: m.WALEnd}
	if m.Open || at.Below(c.until) {
		return nil
	}
	if c.next != nil {
		c.recordMissing()
		return nil
	}
	c.agreeToEnd()
	for _, u := range c.unmatched {
		if evidence.ReachOf(u.tail.position).Below(at) {
			return c.foreignTail(u.topic, u.partition, u.tail, "the database has nothing there")
		}
	}
	if len(c.unmatched) == 0 {
		c.firstMessage = &replication.Message{Kind: m.Kind, WALEnd: m.WALEnd}
	}
	return nil
}
