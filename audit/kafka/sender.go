package kafka

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/protocol"

	"lapse/schemas"
)

// batchTarget is the size at which a batch is full; only a single record that is larger makes a larger batch. Measured
// with 6 and 12 partitions: above 128 KiB larger batches are no faster, and they cost memory twice, here and in kafka-go.
const batchTarget = 256 << 10

// sender publishes to one partition. One batch is under way at a time; records that arrive meanwhile go into the next one, so batches grow
// when the brokers are slow. A single record is sent at once, unless the last batch was sent less than timing.linger ago: then it waits for
// other records until that has passed. Each request costs the broker more than its records do: under load 5 ms saved 60 % of its CPU. A
// batch also waits that long if another record is announced to come at once.
type sender struct {
	p         *Publisher
	topic     string
	partition int32
	limit     int            // bytes of a batch that one record may fill
	codec     compress.Codec // nil: batches are not compressed

	mu      sync.Mutex
	queue   []*batch // in order; the last one still grows
	sending *batch
	waits   waiting
	wakeup  chan struct{}

	end          atomic.Pointer[End]       // after the last acknowledged batch; nil before the fence
	pendingSince atomic.Pointer[time.Time] // first attempt of the batch under way; nil if none is
	acked        atomic.Int64              // offset of the last record acknowledged to this publisher; noOffset before the fence

	// Set by Open, constant afterwards.
	first         int64 // the partition's first offset then
	before        int64 // where the partition ended before the first fence
	fence         int64 // offset of this publisher's fence
	fenceProducer int64 // the producer that wrote it
	tail          tail

	// Used by the goroutine of run alone.
	session       session   // under which the last batch was sealed
	seq           sequence  // of the next batch under it
	ackedProducer int64     // the producer of the record at acked
	foreignGaps   int       // how often there were foreign records between two batches
	begun         time.Time // when the last batch was sent for the first time; zero before the first
}

// waiting is what the sender's goroutine waits for.
type waiting int

const (
	forNothing waiting = iota
	forRecords         // the queue is empty
	forCompany         // there is one batch that is not full, and it lingers
)

func newSender(p *Publisher, topic string, partition int32, limit int, codec compress.Codec) *sender {
	s := &sender{p: p, topic: topic, partition: partition, limit: limit, codec: codec, wakeup: make(chan struct{}, 1)}
	s.acked.Store(noOffset)
	return s
}

// append takes the record with that number. It returns false if the record fits into no batch.
func (s *sender) append(rec *schemas.Record, number uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b *batch
	size := 0
	if n := len(s.queue); n > 0 {
		b = s.queue[n-1]
		size = b.add(rec, min(s.limit, batchTarget))
	}
	if size == 0 {
		b = s.p.newBatch()
		if size = b.add(rec, s.limit); size == 0 {
			s.p.recycle(b)
			return false
		}
		b.first, b.begun = number, time.Now()
		s.queue = append(s.queue, b)
	}
	whole := b.follows && !rec.Follows
	b.follows = rec.Follows
	b.records++
	b.payload += size
	// Under the lock: the batch cannot be acknowledged before its records count as appended. See Publisher.advance.
	s.p.appended.Store(number)
	s.p.buffered.Add(int64(size))
	if s.waits == forRecords || s.waits == forCompany && (whole || len(s.queue) > 1) {
		s.waits = forNothing
		select {
		case s.wakeup <- struct{}{}:
		default: // an unread signal is there already
		}
	}
	return true
}

// next waits for a batch to send. It returns nil when ctx has ended.
func (s *sender) next(ctx context.Context) *batch {
	for ctx.Err() == nil {
		b, lingers := s.take()
		if b != nil {
			return b
		}
		var over <-chan time.Time
		if lingers > 0 {
			over = time.After(lingers)
		}
		select {
		case <-s.wakeup:
		case <-over:
		case <-ctx.Done():
		}
	}
	return nil
}

// take takes the first batch of the queue, unless the queue is empty, or that batch lingers.
func (s *sender) take() (b *batch, lingers time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = forNothing
	if len(s.queue) == 1 { // a batch before another one is full
		since := s.begun
		if s.queue[0].follows && s.queue[0].begun.After(since) {
			since = s.queue[0].begun
		}
		if !since.IsZero() {
			lingers = s.p.timing.linger - time.Since(since)
		}
	}
	switch {
	case len(s.queue) == 0:
		s.waits = forRecords
		return nil, 0
	case lingers > 0:
		s.waits = forCompany
		return nil, lingers
	}
	b = s.queue[0]
	s.queue[0] = nil
	s.queue = s.queue[1:]
	s.sending = b
	return b, 0
}

// oldest returns the number of the first record that is not acknowledged; 0 if all are.
func (s *sender) oldest() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.sending != nil:
		return s.sending.first
	case len(s.queue) > 0:
		return s.queue[0].first
	}
	return 0
}

// run sends batch after batch until ctx ends or an error ends the publisher.
func (s *sender) run(ctx context.Context) {
	for {
		b := s.next(ctx)
		if b == nil {
			return
		}
		s.seal(b)
		s.begun = time.Now()
		offset, err := s.deliver(ctx, b)
		if err == nil && offset >= 0 {
			s.ended(offset, b)
		}
		if err != nil {
			// The batch stays unacknowledged, and may be in the topic or not. The tail of the next publisher tells.
			if ctx.Err() == nil {
				s.p.fail(err)
			}
			return
		}
		s.mu.Lock()
		s.sending = nil
		s.mu.Unlock()
		s.p.delivered(s, b)
	}
}

// ended records where an acknowledged batch ends.
func (s *sender) ended(offset int64, b *batch) {
	s.end.Store(&End{Offset: offset + int64(b.count), Producer: s.session.producer, Epoch: int32(s.session.epoch)})
}

// seal gives the batch its sequence number. Its bytes never change after that.
func (s *sender) seal(b *batch) {
	// A renewed session begins at 0 again. The batch before is acknowledged, so nothing of the old epoch is under way.
	if current := s.p.session.Load(); current.epoch != s.session.epoch || current.producer != s.session.producer {
		s.session, s.seq = *current, 0
	}
	b.addFenceIfOld(time.Now(), s.p.timing.oldRecords, s.p.cfg.FenceHeaders)
	b.seal(s.codec, s.session, s.seq)
	s.seq = s.seq.plus(b.count)
}

// deliver sends the batch until all replicas in sync have acknowledged it, and returns its offset. Every attempt sends
// the same bytes, and the broker appends them once:
//
//	crash before the first attempt       not in the topic; the next publisher's caller sends the records again
//	crash between append and answer      in the topic; the next publisher finds it below its fence, in the tail
//	the broker dies before the append    the next attempt, to it or its successor, appends
//	the broker dies after the append     its successor, or it itself from its log, knows the sequence: no second copy
//	the answer is lost                   the same
//	a late attempt arrives after all     refused: its sequence is known; or its epoch is old, after another's fence
func (s *sender) deliver(ctx context.Context, b *batch) (int64, error) {
	first := time.Now()
	s.pendingSince.Store(&first)
	defer s.pendingSince.Store(nil)
	pauses := s.p.timing.backoff()
	var last error
	for attempt := 1; ; attempt++ {
		if err := s.maySend(first); err != nil {
			return 0, s.wrap(err)
		}
		offset, err := s.attempt(ctx, b)
		switch {
		case err != nil && ctx.Err() != nil:
			return 0, s.wrap(contextEnded(ctx, last))
		case gradeOf(err) == gradeDone:
			s.p.metrics.seconds.WithLabelValues(s.topic).Observe(time.Since(first).Seconds())
			if err != nil {
				offset = noOffset // the broker has the batch, but does not say at which offset
			}
			return offset, s.checkOffset(ctx, b, offset)
		case gradeOf(err) != gradeRetry:
			return 0, s.terminal(err, b)
		}
		s.p.metrics.retries.WithLabelValues(s.topic).Inc()
		if worthLogging(attempt) {
			s.p.log.Warn("batch not acknowledged; sending it again", "topic", s.topic, "partition", s.partition,
				"attempt", attempt, "since", first, "error", withAdvice(err))
		}
		last = err
		s.p.client.refresh()
		_ = pauses.Wait(ctx) // the next attempt fails if ctx has ended
	}
}

// maySend is called before every attempt. After these times the broker may have forgotten what it needs to refuse a second copy.
func (s *sender) maySend(first time.Time) error {
	if age := elapsed(first); age > s.p.timing.maxUnanswered {
		return fmt.Errorf("a batch is without answer for %s: %w", age, ErrRestart)
	}
	if age := elapsed(s.p.session.Load().granted); age > s.p.timing.maxUnrenewed {
		return fmt.Errorf("the session was last renewed %s ago: %w", age, ErrRestart)
	}
	return nil
}

func (s *sender) attempt(ctx context.Context, b *batch) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.p.timing.request)
	defer cancel()
	sent := &body{bytes: b.wire}
	defer sent.close()
	resp, err := s.p.client.kafka.RawProduce(ctx, &kafkago.RawProduceRequest{
		Topic:        s.topic,
		Partition:    int(s.partition),
		RequiredAcks: kafkago.RequireAll,
		RawRecords:   protocol.RawRecordSet{Reader: sent},
	})
	if err != nil {
		return 0, err
	}
	return resp.BaseOffset, resp.Error
}

// terminal wraps an error that ends the publisher.
func (s *sender) terminal(err error, b *batch) error {
	switch gradeOf(err) {
	case gradeFenced:
		return s.wrap(fmt.Errorf("%w: %w", ErrFenced, refusal(err)))
	case gradeRestart:
		return s.wrap(fmt.Errorf("%w: %w", ErrRestart, refusal(err)))
	case gradeLarge:
		return s.wrap(fmt.Errorf("a batch of %d bytes: %w: %w: raise max.message.bytes of the topic, or let this login "+
			"read the topic's settings (DESCRIBE_CONFIGS)", b.sent(), ErrTooLarge, refusal(err)))
	default:
		return s.wrap(withAdvice(err))
	}
}

// wrap says which partition was published to.
func (s *sender) wrap(err error) error {
	return fmt.Errorf("publish to %s/%d: %w", s.topic, s.partition, err)
}
