package audit

import (
	"context"
	"fmt"
	"time"

	"lapse/audit/evidence"
)

// pending is a record of the log that is not acknowledged yet.
type pending struct {
	entry  *evidence.Entry
	events uint64 // mark of the last event that must be acknowledged before the record is appended
	mark   uint64 // mark of the record, once it is appended
}

// queue holds the records of the log that are not acknowledged, in order. The first written of them are appended. The events of the first ready of
// them are acknowledged.
type queue struct {
	items   []pending
	written int
	ready   int

	// For records that are ready but not appended. Only the slot waits for the record of a user's transaction. A record that is sent alone takes ten
	// times the space on the brokers' disks, forever.
	since  time.Time // when the first of them was ready
	bytes  int
	urgent bool // one of them is waited for
	soon   wake // wakes the stream when they have waited long enough
}

// Records of users' transactions wait for others until they have waited that long, or have that many bytes.
const (
	lingerTime  = time.Second
	lingerBytes = 128 << 10
)

func (q *queue) empty() bool { return len(q.items) == 0 }
func (q *queue) full() bool  { return !q.room(1) }

// room reports whether n more records may wait. An empty queue accepts any number.
func (q *queue) room(n int) bool { return q.empty() || len(q.items)+n <= maxQueued }

// oldest returns the time of the first record's transaction.
func (q *queue) oldest() (time.Time, bool) {
	if len(q.items) == 0 {
		return time.Time{}, false
	}
	return q.items[0].entry.Time, true
}

func (q *queue) drop(n int) {
	clear(q.items[:n])
	q.items = q.items[n:]
	q.written -= n
	q.ready -= n
	if len(q.items) == 0 {
		q.items = nil // frees the array and what it holds
	}
}

// advance records that events are acknowledged up to a mark.
func (q *queue) advance(acked uint64, now func() time.Time) {
	for q.ready < len(q.items) && q.items[q.ready].events <= acked {
		if q.ready == q.written {
			q.since, q.bytes, q.urgent = now(), 0, false
		}
		entry := q.items[q.ready].entry
		q.bytes += len(entry.Value)
		q.urgent = q.urgent || !entry.Patient
		q.ready++
	}
}

// lingers returns how much longer the ready records wait for others.
func (q *queue) lingers(now func() time.Time) time.Duration {
	if q.ready == q.written || q.urgent || q.bytes >= lingerBytes {
		return 0
	}
	return lingerTime - now().Sub(q.since)
}

// enqueue queues a record, after the events that it is about. It drops records that the log had at the start.
func (r *relay) enqueue(entry *evidence.Entry) {
	if entry.Position.Compare(r.logged) > 0 {
		r.queue.items, r.last = append(r.queue.items, pending{entry: entry, events: r.lastEvent}), entry.Position
	}
	if entry.More {
		return
	}
	r.reach = entry.Position.Reach
	r.coverage.reached(r.reach)
	r.metrics.serverLag.readUpTo(entry.Position.LSN)
}

// flush moves on whatever acknowledgements allow: it appends records whose events are acknowledged, and confirms the ends of transactions whose last
// record is acknowledged. It makes a coverage record and a checkpoint if they are due.
func (r *relay) flush() error {
	if err := r.sink.Err(); err != nil {
		return fmt.Errorf("publish: %w", err)
	}
	if r.coverage.isDue(r) {
		r.cover()
	}
	acked := r.sink.Acked()
	r.appendRecords(acked)
	if err := r.sign(acked); err != nil {
		return err
	}
	if err := r.show(acked); err != nil {
		return err
	}
	q := &r.queue
	done, end := 0, (*evidence.Entry)(nil) // of a transaction or a coverage whose records are all in the log
	for done < q.written && q.items[done].mark <= acked {
		if entry := q.items[done].entry; !entry.More {
			end = entry
		}
		done++
	}
	if done == 0 {
		return nil
	}
	q.drop(done)
	r.waiting()
	if r.stream != nil && end != nil {
		r.at(step{before: "confirm", record: end})
		r.stream.Confirm(end.Position.LSN)
	}
	return nil
}

// appendRecords appends the records whose events are acknowledged, after a fence that says where those end. Records of users' transactions first wait
// for others.
func (r *relay) appendRecords(acked uint64) {
	q := &r.queue
	q.advance(acked, r.now)
	if pause := q.lingers(r.now); pause > 0 && r.stream != nil && !r.hurried {
		q.soon.in(pause, r.stream)
		return
	}
	q.soon.forget()
	for q.written < q.ready {
		next := &q.items[q.written]
		if r.ends.mustSay(next.events) && !r.sayEnds(acked, true) {
			return
		}
		r.at(step{before: "record", record: next.entry})
		record := r.writer.Record(next.entry)
		record.Follows = q.written+1 < q.ready
		leaf := r.checkpoints.place(&record)
		mark, ok := r.sink.Append(record)
		if !ok {
			return // full: the next acknowledgement wakes the stream
		}
		next.mark, r.lastMark = mark, mark
		r.placed(leaf, mark)
		r.ends.appended(next.entry.Position)
		q.written++
	}
	if r.ends.owed {
		r.sayEnds(acked, false)
	}
}

// awaitKafka waits, between two streams, until Kafka has answered everything that is under way. A server that stopped because Kafka does not answer
// would otherwise have to wait again. An auditor that was replaced meanwhile learns from the answer that it is fenced, and must not take the slot
// again. What is acknowledged meanwhile is flushed, and the next stream confirms it.
func (r *relay) awaitKafka(ctx context.Context) error {
	for {
		if err := r.flush(); err != nil {
			return err
		}
		if r.sink.Acked() >= r.lastMark {
			return nil
		}
		select {
		case <-r.sink.Progress():
		case <-ctx.Done():
			r.drain(ctx)
			return ctx.Err()
		}
	}
}

// drain finishes what is under way, as long as there is time. The slot sends the rest again.
func (r *relay) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	r.checkpoints.wanted, r.hurried = true, true
	for {
		err := r.flush()
		switch {
		case err != nil:
		case r.queue.empty() && r.sink.Acked() >= r.lastMark && r.checkpoints.done() && (r.stream == nil || r.shown(showTimeout)):
			return
		case r.stream != nil:
			err = r.wait(ctx)
		default:
			select {
			case <-r.sink.Progress():
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
