package kafka

import (
	"context"
	"math"
	"time"

	"lapse/schemas"
)

// Timing replaces the durations that are not zero.
type Timing struct {
	Request, Backoff, Missing, OldRecords, MaxUnanswered, RenewEvery, MaxUnrenewed, Linger, EndsEvery, SettingsEvery time.Duration
}

func (c *Config) SetTiming(t Timing) {
	changed := defaultTiming
	for _, d := range []struct {
		to   *time.Duration
		from time.Duration
	}{
		{&changed.request, t.Request},
		{&changed.backoffMax, t.Backoff},
		{&changed.missing, t.Missing},
		{&changed.oldRecords, t.OldRecords},
		{&changed.maxUnanswered, t.MaxUnanswered},
		{&changed.renewEvery, t.RenewEvery},
		{&changed.maxUnrenewed, t.MaxUnrenewed},
		{&changed.linger, t.Linger},
		{&changed.endsEvery, t.EndsEvery},
		{&changed.settingsEvery, t.SettingsEvery},
	} {
		if d.from != 0 {
			*d.to = d.from
		}
	}
	c.timing = &changed
}

// Encode makes one batch, as a produce request carries it: length, header, records.
func Encode(records []schemas.Record, compression Compression, producer int64, epoch int16, base int32) []byte {
	codec, err := compression.codec()
	if err != nil {
		panic(err)
	}
	b := new(batch)
	b.reset()
	for i := range records {
		b.add(&records[i], math.MaxInt)
	}
	b.seal(codec, session{producer: producer, epoch: epoch}, sequence(base))
	return b.wire
}

func SequencePlus(s, n int32) int32 { return int32(sequence(s).plus(n)) }

// Fence is the offset of p's fence in a partition; ok is false for a partition that p does not have.
func (p *Publisher) Fence(topic string, partition int32) (offset int64, ok bool) {
	if s := p.sender(topic, partition); s != nil {
		return s.fence, true
	}
	return noOffset, false
}

// Epoch is the epoch under which p sends.
func (p *Publisher) Epoch() int16 { return p.session.Load().epoch }

// Lingers says whether a batch of partition 0 waits for company.
func (p *Publisher) Lingers(topic string) bool {
	s := p.sender(topic, 0)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waits == forCompany
}

// Encoder adds records to a batch that is emptied when it is full.
func Encoder() func(*schemas.Record) {
	b := new(batch)
	b.reset()
	return func(rec *schemas.Record) {
		if b.add(rec, 900<<10) == 0 {
			b.reset()
		}
	}
}

// CheckEnds does what is done each minute.
func (p *Publisher) CheckEnds(ctx context.Context) error { return p.checkEnds(ctx, map[string]bool{}) }

// Tail reads the tail of a partition below end, as Open does below its fence; and how many foreign records are above it.
func (c *Client) Tail(
	ctx context.Context, topic string, partition int32, end int64, ours func(*schemas.Record) bool, records int,
) (found []Stored, foreign int, err error) {
	t, err := c.tail(ctx, tailRequest{
		topic: topic, partition: partition, end: end, ours: ours, records: records, counted: noOffset,
	})
	return t.records, t.foreign, err
}

// Warnings are what the last check has found wrong with the topics.
func (p *Publisher) Warnings() []string {
	p.notes.mu.Lock()
	defer p.notes.mu.Unlock()
	var all []string
	for i := range p.cfg.Topics {
		all = append(all, p.notes.byTopic[p.cfg.Topics[i].Name]...)
	}
	return all
}

// TailBytes bounds the memory of a tail.
const TailBytes = tailBytes

// Fences in the topics.
const (
	HeaderOp = schemas.HeaderOp
)
