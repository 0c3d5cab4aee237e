package kafka

import (
	"context"
	"math"
	"time"
)

// Timing replaces the durations that are not zero.
type Timing struct{ Request, Backoff, Missing, Stale, Doubt, Renewal, Lease, Ends, Look time.Duration }

func (c *Config) SetTiming(t Timing) {
	changed := defaultTiming
	for _, d := range []struct {
		to   *time.Duration
		from time.Duration
	}{
		{&changed.request, t.Request},
		{&changed.backoffMax, t.Backoff},
		{&changed.missing, t.Missing},
		{&changed.stale, t.Stale},
		{&changed.doubt, t.Doubt},
		{&changed.renewal, t.Renewal},
		{&changed.lease, t.Lease},
		{&changed.ends, t.Ends},
		{&changed.look, t.Look},
	} {
		if d.from != 0 {
			*d.to = d.from
		}
	}
	c.timing = &changed
}

// Encode makes one batch, as a produce request carries it: length, header, records.
func Encode(records []Record, producer int64, epoch int16, base int32) []byte {
	b := new(batch)
	b.reset()
	for i := range records {
		b.add(&records[i], math.MaxInt)
	}
	b.seal(session{producer: producer, epoch: epoch}, sequence(base))
	return b.buf
}

func SequencePlus(s, n int32) int32 { return int32(sequence(s).plus(n)) }

// Epoch is the epoch under which p sends.
func (p *Publisher) Epoch() int16 { return p.session.Load().epoch }

// Encoder adds records to a batch that is emptied when it is full.
func Encoder() func(*Record) {
	b := new(batch)
	b.reset()
	return func(rec *Record) {
		if b.add(rec, 900<<10) == 0 {
			b.reset()
		}
	}
}

// CheckEnds does what is done each minute.
func (p *Publisher) CheckEnds(ctx context.Context) error { return p.checkEnds(ctx, map[string]bool{}) }
