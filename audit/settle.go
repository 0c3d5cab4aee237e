package audit

import (
	"context"
	"fmt"
	"time"

	"lapse/audit/evidence"
	"lapse/audit/kafka"
	"lapse/replication"
)

// maxQueued bounds the records that wait. Each is about a kilobyte; what many small transactions have in the topics
// meanwhile is bounded by the publisher's buffer.
const maxQueued = 4096

// pending is a record of the log on its way.
type pending struct {
	leaf   *evidence.Entry
	events uint64 // mark of the last event that must be acknowledged before the leaf is appended
	mark   uint64 // of the leaf, once it is appended
}

// queue holds the records of the log that are not acknowledged, in order. The first written of them are appended.
type queue struct {
	items   []pending
	written int
}

func (q *queue) empty() bool { return len(q.items) == 0 }
func (q *queue) full() bool  { return len(q.items) >= maxQueued }

// oldest is the time of the first record's transaction.
func (q *queue) oldest() (time.Time, bool) {
	if len(q.items) == 0 {
		return time.Time{}, false
	}
	return q.items[0].leaf.Time, true
}

func (q *queue) drop(n int) {
	clear(q.items[:n])
	q.items = q.items[n:]
	q.written -= n
	if len(q.items) == 0 {
		q.items = nil // the array behind it goes, and so does what it held
	}
}

// enqueue puts a record in line, behind the events that it speaks of.
func (r *relay) enqueue(leaf *evidence.Entry) {
	r.queue.items = append(r.queue.items, pending{leaf: leaf, events: r.lastEvent})
	r.reach = leaf.Position.Reach
	r.coverage.reached(r.reach)
	r.metrics.serverLag.readUpTo(leaf.Position.LSN)
}

// settle moves everything on that acknowledgements have set free: appends records whose events are acknowledged, and
// confirms the ends of those that are acknowledged themselves. It makes a coverage record where one is due.
func (r *relay) settle() error {
	if err := r.publisher.Err(); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	if r.coverage.isDue(r) {
		r.cover()
	}
	acked := r.publisher.Acked()
	q := &r.queue
	for q.written < len(q.items) && q.items[q.written].events <= acked {
		mark, ok := r.publisher.Append(r.logRecord(q.items[q.written].leaf))
		if !ok {
			break // full: the next acknowledgement wakes the stream
		}
		q.items[q.written].mark = mark
		q.written++
	}
	done := 0
	for done < q.written && q.items[done].mark <= acked {
		done++
	}
	if done == 0 {
		return nil
	}
	confirmed := q.items[done-1].leaf.Position.Reach.LSN
	q.drop(done)
	r.waiting()
	if r.stream != nil {
		r.stream.Confirm(confirmed)
	}
	return nil
}

// logRecord is a record of the log as Kafka gets it.
func (r *relay) logRecord(entry *evidence.Entry) kafka.Record {
	rec := r.writer.Record(entry)
	return kafkaRecord(&rec, kafkaHeaders(nil, rec.Headers))
}

// lookPause is how often rest looks whether Kafka answers.
const lookPause = 250 * time.Millisecond

// rest waits between two streams, and on until Kafka answers: a server that stopped because of it would have to wait
// again. What is acknowledged meanwhile is settled, and confirmed by the next stream.
func (r *relay) rest(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			r.drain(ctx)
			return ctx.Err()
		case <-r.publisher.Progress():
			if err := r.settle(); err != nil {
				return err
			}
		case <-timer.C:
			if r.publisher.Stalled() < replication.StalledAtMost {
				return nil
			}
			timer.Reset(lookPause)
		}
	}
}

// drain finishes what is on its way, for as long as there is time. What is left the slot sends again.
func (r *relay) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	for {
		err := r.settle()
		switch {
		case err != nil:
		case r.queue.empty() && r.publisher.Acked() >= r.lastEvent:
			return
		case r.stream != nil:
			err = r.wait(ctx)
		default:
			select {
			case <-r.publisher.Progress():
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		if err != nil {
			r.log.Info("stopped before all was acknowledged; the next start goes on there",
				"records", len(r.queue.items), "error", err)
			return
		}
	}
}

// cover records that everything has been read up to where it has.
func (r *relay) cover() {
	now := r.now()
	upTo := r.coverage.upTo
	r.coverage.done(now)
	content := &evidence.CoverageContent{At: now, Surroundings: &evidence.Surroundings{Ancestry: r.ancestry}}
	r.enqueue(r.writer.Write(content, evidence.Position{Reach: upTo}))
}

// coverage decides when the log says that there was nothing.
type coverage struct {
	upTo   evidence.Reach // what has been read, with everything in the log's queue that came of it
	wanted bool           // somebody waits for it: a server that asks, a policy that is to be armed
	last   time.Time
}

// A coverage record is made each half minute while there is something to cover, since the executor stops when what it did
// has been unconfirmed for a minute; and at most once a second when somebody waits for it.
const (
	coverageEvery = 30 * time.Second
	coveragePause = time.Second
)

// begin starts over at a position: what was known beyond it will be read again.
func (c *coverage) begin(at evidence.Reach, now time.Time) {
	c.upTo, c.wanted = at, false
	if c.last.IsZero() {
		c.last = now.Add(-coveragePause) // the first may be due at once
	}
}

// reached takes note that everything up to a position has been read.
func (c *coverage) reached(at evidence.Reach) {
	if c.upTo.Before(at) {
		c.upTo = at
	}
}

func (c *coverage) done(now time.Time) { c.last, c.wanted = now, false }

// due is when the next record is to be made; the zero time if there is nothing to cover, or no room for it.
func (c *coverage) due(r *relay) time.Time {
	switch {
	case !r.reach.Before(c.upTo), r.queue.full():
		return time.Time{}
	case c.wanted:
		return c.last.Add(coveragePause)
	default:
		return c.last.Add(coverageEvery)
	}
}

func (c *coverage) isDue(r *relay) bool {
	due := c.due(r)
	return !due.IsZero() && !r.now().Before(due)
}
