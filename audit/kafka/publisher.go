package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"lapse/schemas"
)

// Publisher puts each record into its topic once. The package comment says what the caller must do for that. Append is for
// one goroutine; all other methods are safe for concurrent use.
type Publisher struct {
	cfg     Config
	timing  *timing
	log     *slog.Logger
	client  *Client
	metrics *Metrics
	notes   notes

	byTopic map[string][]*sender // and partition
	senders []*sender            // all of them

	appended atomic.Uint64 // number of the last record that was taken
	acked    atomic.Uint64
	buffered atomic.Int64
	progress chan struct{}
	batches  sync.Pool

	session atomic.Pointer[session]
	err     atomic.Pointer[error]
	stop    context.CancelFunc
	running sync.WaitGroup
}

// Open takes the topics over. It tries again until the brokers answer or ctx ends.
//
//	crash after step 2    the topics exist; nothing else has changed
//	crash after step 3    the epoch is higher; a publisher that still runs continues in partitions without a new fence
//	crash within step 4   some partitions are fenced: a former publisher gets ErrFenced there; the next Open fences all
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
		byTopic:  make(map[string][]*sender, len(cfg.Topics)),
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
	if err == nil {
		err = p.client.checkSafe(p.cfg.Topics, topics)
	}
	if err != nil {
		return err
	}
	for i := range p.cfg.Topics {
		t := &p.cfg.Topics[i]
		codec, err := cmp.Or(t.Compression, p.cfg.Compression).codec()
		if err != nil {
			return err // Config.check has checked it
		}
		p.warn(t, topics[t.Name])
		limit := p.limit(batchLimit(topics[t.Name].settings, p.cfg.MaxBatchBytes))
		if t.Partitions == 0 {
			t.Partitions = topics[t.Name].partitions
		}
		for partition := range t.Partitions {
			s := newSender(p, t.Name, int32(partition), limit, codec)
			p.byTopic[t.Name] = append(p.byTopic[t.Name], s)
			p.senders = append(p.senders, s)
		}
	}
	before, err := p.readFormers(ctx)
	if err != nil {
		return err
	}
	if err := p.fenceAll(ctx, before); err != nil { // 3. producer and epoch, 4. fences
		return err
	}
	if err := p.readTails(ctx); err != nil { // 5. tails
		return err
	}
	s := p.session.Load()
	p.log.Info("publisher opened", "transactional_id", p.cfg.TransactionalID, "partitions", len(p.senders),
		"producer", s.producer, "epoch", s.epoch)
	return nil
}

// limit is how many bytes of a batch of at most size bytes records may fill. The rest is for batch.addFenceIfOld.
func (p *Publisher) limit(size int) int {
	fence := newFence(p.cfg.FenceHeaders, time.Now())
	return size - recordSize(&fence, math.MaxInt64, math.MaxInt32) - varintSize(math.MaxInt32)
}

// fence writes one record into every partition. From then on the partition's leader refuses every former epoch. Until
// then batches of a former publisher may still be appended, below the fence. used says that a partition has a fence of this epoch already.
func (p *Publisher) fence(ctx context.Context, before formers) (used bool, err error) {
	var known atomic.Bool
	group, ctx := errgroup.WithContext(ctx)
	for _, s := range p.senders {
		group.Go(func() error {
			if err := s.fenceFormers(ctx, before); err != nil {
				return err
			}
			s.session, s.seq = *p.session.Load(), 0
			s.acked.Store(noOffset) // of fences in others' names
			offset, err := s.sendFence(ctx)
			switch {
			case err != nil:
				return err
			case offset < 0:
				return s.wrap(fmt.Errorf("the fence has no offset: %w", ErrRestart))
			case offset < s.before:
				known.Store(true)
				return nil
			}
			s.fence, s.fenceProducer = offset, s.session.producer
			return nil
		})
	}
	err = group.Wait()
	return known.Load(), err
}

// readTails reads what lies below each fence. Nothing changes there any more, except that retention may delete it.
func (p *Publisher) readTails(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4) // each holds an answer of the broker in memory
	for i := range p.cfg.Topics {
		t := &p.cfg.Topics[i]
		for _, s := range p.byTopic[t.Name] {
			group.Go(func() error { return p.readTail(ctx, s, max(t.Tail, 1)) })
		}
	}
	return group.Wait()
}

func (p *Publisher) readTail(ctx context.Context, s *sender, records int) error {
	at := topicPartition{s.topic, s.partition}
	read := tailRequest{
		topic: s.topic, partition: s.partition, end: s.fence, ours: p.cfg.Ours, records: records,
		counted: p.metrics.countedTo(at, s.fence),
	}
	var err error
	if s.tail, err = p.client.tail(ctx, read); err != nil || s.tail.foreign == 0 {
		return err
	}
	p.metrics.steppedOver(at, s.tail.uncounted, s.fence-1)
	p.log.Warn("somebody else's records follow ours and are skipped; nobody else may write into this topic: find "+
		"out who does, and take the right away (ACL: WRITE)",
		"topic", s.topic, "partition", s.partition, "records", s.tail.foreign, "below", s.fence)
	return nil
}

func (p *Publisher) start(ctx context.Context) {
	ctx, p.stop = context.WithCancel(context.WithoutCancel(ctx)) // Open's context bounds Open
	for _, s := range p.senders {
		p.running.Go(func() { s.run(ctx) })
	}
	p.running.Go(func() { p.renew(ctx) })
	p.running.Go(func() { p.watch(ctx) })
}

// renew asks for the next epoch at intervals. So the coordinator does not forget the transactional id, and a publisher
// that was replaced learns of it.
func (p *Publisher) renew(ctx context.Context) {
	tick := time.NewTicker(p.timing.renewEvery)
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
		if s.producer != p.session.Load().producer { // the epochs have run out, and a fence of another producer fences nobody
			p.fail(fmt.Errorf("renew the session: the broker gives another producer: %w", ErrRestart))
			return
		}
		p.session.Store(&s)
	}
}

// sender returns the sender of a partition, or nil.
func (p *Publisher) sender(topic string, partition int32) *sender {
	all := p.byTopic[topic]
	if partition < 0 || int(partition) >= len(all) {
		return nil
	}
	return all[partition]
}

// Last returns the newest records of ours (Config.Ours) in a partition below this publisher's fence, the oldest of them
// first: what the topic had when Open returned. Everything that was published to the partition before the last one is in
// the topic.
//
// There are as many as Topic.Tail says, or fewer: at the start of the partition, and where they would take more than 1 MiB
// of memory. The newest is there whatever its size. Offsets grow and may have gaps: fences, records of others, and what
// compaction has removed lie between. Client.Backward reads what is below the first.
//
// It is empty in a partition that has no record of ours, and in a topic that was deleted and made again. A caller that
// knows of records there must not take that for a beginning. The slice is the publisher's: do not change it.
func (p *Publisher) Last(topic string, partition int32) []Stored {
	if s := p.sender(topic, partition); s != nil {
		return s.tail.records
	}
	return nil
}

// End is the end of what was acknowledged in a partition; the zero End for one that this publisher does not have.
func (p *Publisher) End(topic string, partition int32) End {
	if s := p.sender(topic, partition); s != nil {
		return *s.end.Load()
	}
	return End{}
}

// aheadAtMost is how far a record's time may be ahead of our clock. A broker refuses a record that is an hour ahead of its own clock, and
// with it everything after it: if a server's clock was wrong for a moment, its audit would stop until that time. Two hosts' clocks differ
// by less, and within that the same record has the same time whenever it is published.
const aheadAtMost = time.Minute

// Append takes a record to be published, and never blocks. It numbers the records 1, 2, 3 … over all partitions, and
// returns the number. It encodes the record before it returns: the record's memory is the caller's again.
//
// ok is false if the record was not taken. If Err is nil then, the buffer is full: wait for Progress and try again. Any
// other error is final. So is a record that is too large (ErrTooLarge): to go on without it would be to drop it.
//
// A record that was taken is durable when Acked reaches its number. If this process dies before that, the record may be in
// the topic or not; the tail that the next Open reads tells.
func (p *Publisher) Append(rec schemas.Record) (number uint64, ok bool) {
	if p.err.Load() != nil {
		return 0, false
	}
	s := p.sender(rec.Topic, rec.Partition)
	if s == nil {
		p.fail(fmt.Errorf("publish to %s/%d: no such partition was opened", rec.Topic, rec.Partition))
		return 0, false
	}
	if rec.Time.Before(time.UnixMilli(0)) {
		p.fail(s.wrap(errors.New("a record without time, or of before 1970")))
		return 0, false
	}
	if now := time.Now(); rec.Time.After(now.Add(aheadAtMost)) {
		rec.Time = now
	}
	if p.buffered.Load() >= int64(p.cfg.MaxBuffered) {
		return 0, false
	}
	number = p.appended.Load() + 1
	if !s.append(&rec, number) {
		p.fail(s.wrap(fmt.Errorf("a record of %d bytes where %d are allowed: %w: raise max.message.bytes of the topic", recordSize(&rec, 0, 0),
			s.limit-headerSize, ErrTooLarge)))
		return 0, false
	}
	return number, true
}

// Acked is the largest number up to which all records are acknowledged by all replicas in sync.
func (p *Publisher) Acked() uint64 { return p.acked.Load() }

// Progress receives when Acked has moved, when the buffer has room again, and when the publisher has ended with an error.
// Several signals may be delivered as one: check all three.
func (p *Publisher) Progress() <-chan struct{} { return p.progress }

// Stalled is how long the oldest batch under way has been unanswered, over all its attempts; 0 if none is under way.
func (p *Publisher) Stalled() time.Duration {
	longest := time.Duration(0)
	for _, s := range p.senders {
		if since := s.pendingSince.Load(); since != nil {
			longest = max(longest, time.Since(*since))
		}
	}
	return longest
}

// Awaits tells a person what is missing while Stalled grows.
func (p *Publisher) Awaits() string { return "Kafka has not answered" }

// Err is nil while the publisher works or tries again. Otherwise the publisher has ended and sends nothing more: see
// ErrFenced, ErrRestart, ErrTooLarge. A record that was not acknowledged may be in the topic or not.
func (p *Publisher) Err() error {
	if err := p.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Close stops sending and frees what the publisher holds. It does not wait for acknowledgements: a caller that wants
// them waits for Acked first. A record that is not acknowledged by then may be in the topic or not.
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
		return fmt.Errorf("close the publisher: %w", context.Cause(ctx))
	}
}

// fail keeps the first error that ends the publisher, and stops all goroutines.
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

// delivered counts an acknowledged batch and frees its memory.
func (p *Publisher) delivered(s *sender, b *batch) {
	p.metrics.batches.WithLabelValues(s.topic).Inc()
	p.metrics.records.WithLabelValues(s.topic).Add(float64(b.records))
	p.metrics.bytes.WithLabelValues(s.topic).Add(float64(b.sent()))
	p.buffered.Add(-int64(b.payload))
	p.recycle(b)
	p.advance()
	p.signal()
}

// advance raises Acked. It first reads the number of the last record: every record up to that number has reached its sender by then, so an
// unacknowledged one is found there. Several senders may advance at the same time, and each value that they find is right.
func (p *Publisher) advance() {
	upTo := p.appended.Load()
	for _, s := range p.senders {
		if oldest := s.oldest(); oldest != 0 {
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
