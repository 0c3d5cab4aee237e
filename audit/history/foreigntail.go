package history

import (
	"bytes"
	"fmt"
	"slices"

	"lapse/audit/evidence"
	"lapse/replication"
	"lapse/schemas"
)

// unmatchedTail is a tail above the log's end that the stream has not reached.
type unmatchedTail struct {
	topic     string
	partition int32
	tail      *tail
}

// findUnmatched lists the tails above the log's end. The relay takes a tail for the last event in its partition, so a tail that this database never
// wrote would hide real deletions below it. Each tail must be one of these:
//
//	a marker that this start writes
//	an event on a timeline that a rewind of this start revokes
//	an event that the stream sends: matchEvents, matchGap
//
// Any other is foreign, and refused. A tail that the server cannot have sent is refused at once: one of another history, of a timeline that the
// server was never on, or beyond what it has written.
func (c *comparison) findUnmatched() error {
	for _, topic := range []evidence.Topic{c.route.System, c.route.User} {
		tails := c.topics.tails[topic.Name]
		for partition := range tails {
			t := &tails[partition]
			at := evidence.ReachOf(t.position)
			if at.Compare(c.topics.LogEnd.Reach) < 0 || t.position == (replication.Position{}) || c.isPlanned(t) || c.isRewound(t) {
				continue
			}
			if why := c.impossible(at); why != "" {
				return c.foreignTail(topic.Name, int32(partition), t, why)
			}
			// The slot sends nothing below its position. If init has made the slot again, a gap covers what the log has no record of.
			if !at.Below(c.agreed) {
				c.unmatched = append(c.unmatched, &unmatchedTail{topic: topic.Name, partition: int32(partition), tail: t})
			}
		}
	}
	return nil
}

// impossible says why the server cannot have sent something at this position; empty if it can.
func (c *comparison) impossible(at evidence.Reach) string {
	end, left := c.identity.Ancestry.End(at.Timeline)
	switch {
	case at.History != c.topics.LogEnd.Reach.History:
		return fmt.Sprintf("the database is in history %d", c.topics.LogEnd.Reach.History)
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

// foreignTail refuses a tail that this database never wrote.
func (c *comparison) foreignTail(topic string, partition int32, t *tail, why string) error {
	return Refuse(ErrForeignTail, "%s/%d ends with an event at %s: %s",
		"find out who wrote it; lapse history accept --reason TEXT goes on above it, by another history",
		topic, partition, t.position, why)
}

// matchEvents removes the tails that are events of the assembler.
func (c *comparison) matchEvents() error {
	for e := c.assembler.Next(); e != nil; e = c.assembler.Next() {
		if !c.readBeyond {
			continue
		}
		routed := c.router.Route(e)
		for _, partition := range routed.Partitions {
			rec := &schemas.Record{Topic: routed.Topic, Partition: partition, Key: routed.Key, Value: routed.Value}
			if err := c.matchTail(e.Tx.Position(e.Ordinal), rec); err != nil {
				return err
			}
		}
	}
	return nil
}

// matchGap removes the tails that are gaps at a heartbeat's position.
func (c *comparison) matchGap(tx *replication.Tx, account *evidence.Account) {
	if account.Heartbeat == nil {
		return
	}
	// A gap that only the former process knew of, such as a topic's, is at a heartbeat too, and looks the same.
	c.unmatched = slices.DeleteFunc(c.unmatched, func(u *unmatchedTail) bool {
		at := u.tail.position
		return u.tail.record.Header(schemas.HeaderOp) == evidence.Gap.String() && at == tx.Position(at.Ordinal)
	})
}

// matchTail removes the tail that a record is. It refuses a tail at or below the record's position that is another record.
func (c *comparison) matchTail(position replication.Position, rec *schemas.Record) error {
	for i, u := range c.unmatched {
		if u.topic != rec.Topic || u.partition != rec.Partition || position.Compare(u.tail.position) < 0 {
			continue
		}
		if position != u.tail.position || !bytes.Equal(u.tail.record.Value, rec.Value) || !bytes.Equal(u.tail.record.Key, rec.Key) {
			return c.foreignTail(u.topic, u.partition, u.tail, "the database has another event there, or none")
		}
		c.unmatched = append(c.unmatched[:i:i], c.unmatched[i+1:]...)
		return nil
	}
	return nil
}

// isRewound reports whether a rewind of this start revokes a tail: the tail is above the fork, on a timeline that the rewind ends, on which nothing
// more is published.
func (c *comparison) isRewound(t *tail) bool {
	for i := range c.markers {
		m := &c.markers[i]
		if m.Op == evidence.Rewind && t.position.History == m.From.History && t.position.Timeline < m.At.Timeline &&
			!evidence.ReachOf(t.position).Below(m.From) {
			return true
		}
	}
	return false
}

// isPlanned reports whether a tail is a marker that this start is about to write.
func (c *comparison) isPlanned(t *tail) bool {
	for i := range c.markers {
		if m := &c.markers[i]; m.At == t.position {
			return bytes.Equal(c.router.MarkerValue(m), t.record.Value)
		}
	}
	return false
}
