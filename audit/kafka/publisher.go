package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// Publisher puts each record into its topic once. See the package comment for what that takes of the caller. Append is
// for one goroutine; everything else is safe for concurrent use.
type Publisher struct {
	cfg     Config
	timing  *timing
	log     *slog.Logger
	client  *Client
	metrics *Metrics
	notes   notes

	lanes map[string][]*lane // by topic and partition
	every []*lane

	appended atomic.Uint64 // marks given out
	acked    atomic.Uint64
	buffered atomic.Int64
	progress chan struct{}
	batches  sync.Pool

	session atomic.Pointer[session]
	err     atomic.Pointer[error]
	stop    context.CancelFunc
	running sync.WaitGroup
}

// Open takes the topics over. It waits for the brokers as long as ctx lets it.
//
//	crash after step 2    topics are there; nothing else
//	crash after step 3    the epoch has moved; a publisher that still runs goes on where its partition has no fence yet
//	crash within step 4   some partitions are fenced: whoever ran before is stopped there, and told; the next Open fences
//	                      all of them
//	crash after step 4    one more fence in every partition, which consumers skip
func Open(ctx context.Context, cfg Config) (*Publisher, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	client, err := NewClient(cfg) // 1. connect
	if err != nil {
		return nil, err
	}
	p := &Publisher{
		cfg: cfg, timing: cfg.timing, log: cfg.Logger, client: client, metrics: cfg.Metrics,
		lanes:    make(map[string][]*lane, len(cfg.Topics)),
		progress: make(chan struct{}, 1),
	}
	if err := p.takeOver(ctx); err != nil {
		client.Close()
		return nil, err
	}
	p.metrics.opened.Inc()
	p.start(ctx)
	return p, nil
}

func (p *Publisher) takeOver(ctx context.Context) error {
	topics, err := p.client.ensureTopics(ctx, p.cfg.Topics) // 2. topics
	if err != nil {
		return err
	}
	for i := range p.cfg.Topics {
		t := &p.cfg.Topics[i]
		p.note(t, topics[t.Name])
		limit := p.limit(batchLimit(topics[t.Name].settings, p.cfg.MaxBatchBytes))
		if t.Partitions == 0 {
			t.Partitions = topics[t.Name].partitions
		}
		for i := range t.Partitions {
			l := newLane(p, t.Name, int32(i), limit)
			p.lanes[t.Name] = append(p.lanes[t.Name], l)
			p.every = append(p.every, l)
		}
	}
	s, err := p.client.openSession(ctx, p.cfg.TransactionalID) // 3. producer and epoch
	if err != nil {
		return err
	}
	p.session.Store(&s)
	fences, err := p.fence(ctx) // 4. fences
	if err != nil {
		return err
	}
	if err := p.readTails(ctx, fences); err != nil { // 5. tails
		return err
	}
	p.log.Info("publisher opened", "transactional_id", p.cfg.TransactionalID, "partitions", len(p.every),
		"producer", s.producer, "epoch", s.epoch)
	return nil
}

// limit is what records may fill of a batch of at most size bytes: room is left for batch.refresh.
func (p *Publisher) limit(size int) int {
	fence := newFence(p.cfg.FenceHeaders, time.Now())
	return size - recordSize(&fence, math.MaxInt64, math.MaxInt32) - varintSize(math.MaxInt32)
}

// fence writes one record into every partition and returns the offsets. Once a partition has it, its broker refuses every
// former epoch; until then a former publisher's batches may still come in, below the fence.
func (p *Publisher) fence(ctx context.Context) ([]int64, error) {
	offsets := make([]int64, len(p.every))
	group, ctx := errgroup.WithContext(ctx)
	for i, l := range p.every {
		group.Go(func() error {
			b := p.newBatch()
			defer p.recycle(b)
			fence := newFence(p.cfg.FenceHeaders, time.Now())
			b.add(&fence, math.MaxInt)
			l.seal(b)
			offset, err := l.deliver(ctx, b)
			if err == nil && offset < 0 {
				err = fmt.Errorf("kafka: the fence of %s/%d has no offset: %w", l.topic, l.partition, ErrRestart)
			}
			offsets[i] = offset
			l.end.Store(offset + 1)
			l.fence, l.fenceBy = offset, l.session.producer
			return err
		})
	}
	return offsets, group.Wait()
}

// readTails looks below each fence, where nothing changes any more but by retention.
func (p *Publisher) readTails(ctx context.Context, fences []int64) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4) // each holds an answer of the broker in memory
	for i, l := range p.every {
		group.Go(func() error { return p.readTail(ctx, l, fences[i]) })
	}
	return group.Wait()
}

func (p *Publisher) readTail(ctx context.Context, l *lane, fence int64) (err error) {
	at := place{l.topic, l.partition}
	var fresh int
	l.last, fresh, err = p.client.tail(ctx, l.topic, l.partition, fence, p.cfg.Ours, p.metrics.countedTo(at, fence))
	if err != nil || l.last.Foreign == 0 {
		return err
	}
	p.metrics.steppedOver(at, fresh, fence-1)
	p.log.Warn("somebody else's records stand behind ours and are stepped over; nobody else may write into this topic: find "+
		"out who does, and take the right away (ACL: WRITE)",
		"topic", l.topic, "partition", l.partition, "records", l.last.Foreign, "below", fence)
	return nil
}

func (p *Publisher) start(ctx context.Context) {
	ctx, p.stop = context.WithCancel(context.WithoutCancel(ctx)) // Open's context bounds Open
	for _, l := range p.every {
		p.running.Go(func() { l.run(ctx) })
	}
	p.running.Go(func() { p.renew(ctx) })
	p.running.Go(func() { p.watch(ctx) })
}

// renew keeps the transactional id known, and this publisher the one that has it.
func (p *Publisher) renew(ctx context.Context) {
	tick := time.NewTicker(p.timing.renewal)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		s, err := p.client.renewSession(ctx, p.cfg.TransactionalID, *p.session.Load())
		switch {
		case ctx.Err() != nil:
			return
		case gradeOf(err) == gradeFenced:
			p.fail(fmt.Errorf("%w: %w", ErrFenced, err))
			return
		case err != nil:
			p.fail(fmt.Errorf("%w: %w", ErrRestart, err))
			return
		}
		p.session.Store(&s)
	}
}

// Partitions is how many partitions of a topic are published to; 0 for a topic that is not this publisher's.
func (p *Publisher) Partitions(topic string) int { return len(p.lanes[topic]) }

// Last is the last record of ours (Config.Ours) below this publisher's fence, and its offset: what the topic had when Open
// returned. All that was published before it, in this partition, is in the topic. It finds nothing in a topic that was
// deleted and made again: a caller that knows of records there must not take that for a beginning.
func (p *Publisher) Last(topic string, partition int32) (Record, int64, bool) {
	lanes := p.lanes[topic]
	if partition < 0 || int(partition) >= len(lanes) {
		return Record{}, 0, false
	}
	last := lanes[partition].last
	return last.Record, last.Offset, last.Found
}

// End is the offset behind the last batch that was acknowledged in a partition; -1 for one that is not this publisher's.
func (p *Publisher) End(topic string, partition int32) int64 {
	lanes := p.lanes[topic]
	if partition < 0 || int(partition) >= len(lanes) {
		return -1
	}
	return lanes[partition].end.Load()
}

// Fence is the offset of this publisher's fence. One that is not above an offset that was seen in the partition before
// proves that the topic was deleted and made again, or has lost its end.
func (p *Publisher) Fence(topic string, partition int32) (offset int64, ok bool) {
	lanes := p.lanes[topic]
	if partition < 0 || int(partition) >= len(lanes) {
		return nowhere, false
	}
	return lanes[partition].fence, true
}

// Append takes a record to be published, and never blocks. Marks number the records 1, 2, 3 …, over all partitions. The
// record is encoded before Append returns: its memory is the caller's again.
//
// ok is false if the record was not taken. Then look at Err: nil means that the buffer is full, so wait for Progress and
// try again; anything else is final. A record that is too large is final too (ErrTooLarge), because to go on without it
// would be to drop it.
//
// A record that was taken is durable when Acked reaches its mark. If this process dies before, it may be in the topic or
// not; the next Open's tail tells.
func (p *Publisher) Append(rec Record) (mark uint64, ok bool) {
	if p.err.Load() != nil {
		return 0, false
	}
	lanes := p.lanes[rec.Topic]
	if rec.Partition < 0 || int(rec.Partition) >= len(lanes) {
		p.fail(fmt.Errorf("kafka: no partition %s/%d among those opened", rec.Topic, rec.Partition))
		return 0, false
	}
	if rec.Time.Before(time.UnixMilli(0)) {
		p.fail(fmt.Errorf("kafka: a record for %s without time, or of before 1970", rec.Topic))
		return 0, false
	}
	if p.buffered.Load() >= int64(p.cfg.MaxBuffered) {
		return 0, false
	}
	mark = p.appended.Load() + 1
	if !lanes[rec.Partition].append(&rec, mark) {
		p.fail(fmt.Errorf("kafka: a record of %d bytes for %s, which takes %d: %w", recordSize(&rec, 0, 0), rec.Topic,
			lanes[rec.Partition].limit-headerSize, ErrTooLarge))
		return 0, false
	}
	return mark, true
}

// Acked is the largest mark such that every record with that mark or a smaller one is acknowledged by all replicas.
func (p *Publisher) Acked() uint64 { return p.acked.Load() }

// Progress receives whenever Acked has moved, room has come free or Err is not nil any more. Signals melt into one: look
// at all three.
func (p *Publisher) Progress() <-chan struct{} { return p.progress }

// Stalled is how long the oldest batch under way has been without an answer, over all its attempts; 0 if none is.
func (p *Publisher) Stalled() time.Duration {
	longest := time.Duration(0)
	for _, l := range p.every {
		if since := l.since.Load(); since != nil {
			longest = max(longest, time.Since(*since))
		}
	}
	return longest
}

// Err is nil while the publisher works or merely tries again. Otherwise nothing more is sent: see ErrFenced, ErrRestart,
// ErrTooLarge. What was not acknowledged may be in the topic or not.
func (p *Publisher) Err() error {
	if err := p.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Collectors are the metrics that this publisher counts in.
func (p *Publisher) Collectors() []prometheus.Collector { return p.metrics.Collectors() }

// Close stops sending and frees what the publisher holds. It does not wait for acknowledgements: a caller that wants
// them waits for Acked before. What is unacknowledged then may be in the topic or not.
func (p *Publisher) Close(ctx context.Context) error {
	p.fail(ErrClosed)
	p.client.Close()
	done := make(chan struct{})
	go func() {
		p.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("kafka: close: %w", context.Cause(ctx))
	}
}

// fail keeps the first terminal error and stops everything.
func (p *Publisher) fail(err error) {
	if !p.err.CompareAndSwap(nil, &err) {
		return
	}
	p.stop()
	p.signal()
	if !errors.Is(err, ErrClosed) {
		p.log.Error("publisher stopped", "error", err)
	}
}

func (p *Publisher) signal() {
	select {
	case p.progress <- struct{}{}:
	default:
	}
}

// delivered takes a batch off the books.
func (p *Publisher) delivered(l *lane, b *batch) {
	p.metrics.batches.WithLabelValues(l.topic).Inc()
	p.metrics.records.WithLabelValues(l.topic).Add(float64(b.records))
	p.metrics.bytes.WithLabelValues(l.topic).Add(float64(b.size()))
	p.buffered.Add(-int64(b.payload))
	p.recycle(b)
	p.advance()
	p.signal()
}

// advance moves Acked on. The count of marks is read first: a record with a mark up to it is known to its lane by then,
// and is found there unless it is acknowledged. Lanes may advance at the same time; every value found is true for ever.
func (p *Publisher) advance() {
	upTo := p.appended.Load()
	for _, l := range p.every {
		if oldest := l.oldest(); oldest != 0 {
			upTo = min(upTo, oldest-1)
		}
	}
	for {
		acked := p.acked.Load()
		if upTo <= acked || p.acked.CompareAndSwap(acked, upTo) {
			return
		}
	}
}

func (p *Publisher) newBatch() *batch {
	b, ok := p.batches.Get().(*batch)
	if !ok {
		b = new(batch)
	}
	b.reset()
	return b
}

func (p *Publisher) recycle(b *batch) { p.batches.Put(b) }
