package kafka

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// batchTarget is where a batch ends and the next begins; only a record that is larger makes a larger one. Measured with 6
// and 12 partitions: from 128 KiB up, larger batches are no faster, and they cost memory twice, here and in kafka-go.
const batchTarget = 256 << 10

// lane publishes to one partition: one batch is under way, and what comes meanwhile gathers in the next. So batches are
// as large as the brokers are slow, and a single record waits for nothing.
type lane struct {
	p         *Publisher
	topic     string
	partition int32
	limit     int // bytes of a batch that one record may fill
	last      Tail

	mu      sync.Mutex
	queue   []*batch // in order; the last one still grows
	sending *batch
	idle    bool
	wake    chan struct{}

	end   atomic.Int64              // the offset behind the last batch that was acknowledged
	since atomic.Pointer[time.Time] // of the batch under way, when it was first sent

	acked atomic.Int64 // offset of the last record that was acknowledged to this publisher; -1 before the fence

	// Fixed when Open returns: where this publisher's fence is, and of which producer.
	fence   int64
	fenceBy int64

	// The sender's own.
	session session  // under which the last batch was sealed
	seq     sequence // of the next batch under it
	ackedBy int64    // the producer of the record at acked
	strange int      // how often somebody else's records were found between two batches
}

func newLane(p *Publisher, topic string, partition int32, limit int) *lane {
	l := &lane{p: p, topic: topic, partition: partition, limit: limit, wake: make(chan struct{}, 1)}
	l.acked.Store(nowhere)
	return l
}

// nowhere is the offset of no record.
const nowhere = -1

// append takes a record, unless it fits into no batch.
func (l *lane) append(rec *Record, mark uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	var b *batch
	size := 0
	if n := len(l.queue); n > 0 {
		b = l.queue[n-1]
		size = b.add(rec, min(l.limit, batchTarget))
	}
	if size == 0 {
		b = l.p.newBatch()
		if size = b.add(rec, l.limit); size == 0 {
			l.p.recycle(b)
			return false
		}
		b.first = mark
		l.queue = append(l.queue, b)
	}
	b.records++
	b.payload += size
	// Under the lock: the sender cannot have the batch acknowledged before its records count as appended. See advance.
	l.p.appended.Store(mark)
	l.p.buffered.Add(int64(size))
	if l.idle {
		l.idle = false
		l.wake <- struct{}{} // has room for the one signal of an idle sender
	}
	return true
}

// next waits for a batch to send. nil means that ctx has ended.
func (l *lane) next(ctx context.Context) *batch {
	for ctx.Err() == nil {
		l.mu.Lock()
		if len(l.queue) > 0 {
			b := l.queue[0]
			l.queue[0] = nil
			l.queue = l.queue[1:]
			l.sending = b
			l.mu.Unlock()
			return b
		}
		l.idle = true
		l.mu.Unlock()
		select {
		case <-l.wake:
		case <-ctx.Done():
		}
	}
	return nil
}

// oldest is the mark of the first record that is not acknowledged; 0 if there is none.
func (l *lane) oldest() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.sending != nil:
		return l.sending.first
	case len(l.queue) > 0:
		return l.queue[0].first
	}
	return 0
}

// run sends batch after batch until ctx ends or something terminal happens.
func (l *lane) run(ctx context.Context) {
	for {
		b := l.next(ctx)
		if b == nil {
			return
		}
		l.seal(b)
		offset, err := l.deliver(ctx, b)
		if err == nil && offset >= 0 {
			l.end.Store(offset + int64(b.count))
		}
		if err != nil {
			// The batch stays unacknowledged, in the topic or not. Whoever opens the next publisher finds out from the tail.
			if ctx.Err() == nil {
				l.p.fail(err)
			}
			return
		}
		l.mu.Lock()
		l.sending = nil
		l.mu.Unlock()
		l.p.delivered(l, b)
	}
}

// seal gives the batch its place in the sequence. From here on its bytes are fixed.
func (l *lane) seal(b *batch) {
	// A renewed session begins anew at 0. The former batch is acknowledged, so nothing of the old epoch is under way.
	if s := l.p.session.Load(); s.epoch != l.session.epoch || s.producer != l.session.producer {
		l.session, l.seq = *s, 0
	}
	b.refresh(time.Now(), l.p.timing.stale, l.p.cfg.FenceHeaders)
	b.seal(l.session, l.seq)
	l.seq = l.seq.plus(b.count)
}

// deliver sends the batch until it is acknowledged by all replicas in sync, and returns its offset. Every attempt sends
// the same bytes, and the broker appends them once:
//
//	crash before the first attempt       not in the topic; the next publisher's caller sends the records again
//	crash between append and answer      in the topic; the next publisher finds it below its fence, in the tail
//	the broker dies before the append    the next attempt, to it or its successor, appends
//	the broker dies after the append     its successor, or it itself from its log, knows the sequence: no second copy
//	the answer is lost                   the same
//	a late attempt arrives after all     the sequence is known, or behind: refused; after another one's fence: refused
func (l *lane) deliver(ctx context.Context, b *batch) (int64, error) {
	first := time.Now()
	l.since.Store(&first)
	defer l.since.Store(nil)
	var last error
	for attempt := 1; ; attempt++ {
		if err := l.maySend(first); err != nil {
			return 0, err
		}
		offset, err := l.attempt(ctx, b)
		switch {
		case err != nil && ctx.Err() != nil:
			return 0, fmt.Errorf("kafka: publish to %s/%d: %w", l.topic, l.partition, ended(ctx, last))
		case gradeOf(err) == gradeDone:
			l.p.metrics.seconds.WithLabelValues(l.topic).Observe(time.Since(first).Seconds())
			if err != nil {
				offset = nowhere // the broker knows the batch, and does not say where it is
			}
			return offset, l.follows(ctx, b, offset)
		case gradeOf(err) != gradeRetry:
			return 0, l.terminal(err, b)
		}
		l.p.metrics.retries.WithLabelValues(l.topic).Inc()
		if worthLogging(attempt) {
			l.p.log.Warn("batch not acknowledged; sending it again", "topic", l.topic, "partition", l.partition,
				"attempt", attempt, "since", first, "error", err)
		}
		last = err
		l.p.client.refresh()
		l.p.client.pause(ctx, attempt)
	}
}

// maySend stands before every attempt: beyond these times the broker may have forgotten what it needs to refuse a second
// copy.
func (l *lane) maySend(first time.Time) error {
	if in := elapsed(first); in > l.p.timing.doubt {
		return fmt.Errorf("kafka: %s/%d: a batch is without answer for %s: %w", l.topic, l.partition, in, ErrRestart)
	}
	if in := elapsed(l.p.session.Load().granted); in > l.p.timing.lease {
		return fmt.Errorf("kafka: the session was last renewed %s ago: %w", in, ErrRestart)
	}
	return nil
}

func (l *lane) attempt(ctx context.Context, b *batch) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, l.p.timing.request)
	defer cancel()
	loan := &wire{bytes: b.buf}
	defer loan.withdraw()
	resp, err := l.p.client.kafka.RawProduce(ctx, &kafkago.RawProduceRequest{
		Topic:        l.topic,
		Partition:    int(l.partition),
		RequiredAcks: kafkago.RequireAll,
		RawRecords:   protocol.RawRecordSet{Reader: loan},
	})
	if err != nil {
		return 0, err
	}
	return resp.BaseOffset, resp.Error
}

// terminal words an error after which nothing more is sent.
func (l *lane) terminal(err error, b *batch) error {
	where := fmt.Sprintf("kafka: publish to %s/%d", l.topic, l.partition)
	err = own(err)
	switch gradeOf(err) {
	case gradeFenced:
		return fmt.Errorf("%s: %w: %w", where, ErrFenced, err)
	case gradeRestart:
		return fmt.Errorf("%s: %w: %w", where, ErrRestart, err)
	case gradeLarge:
		return fmt.Errorf("%s: a batch of %d bytes: %w: %w: raise max.message.bytes of the topic, or let this login "+
			"read the topic's settings (DESCRIBE_CONFIGS)", where, b.size(), ErrTooLarge, err)
	default:
		return fmt.Errorf("%s: %w%s", where, err, advice(err))
	}
}
