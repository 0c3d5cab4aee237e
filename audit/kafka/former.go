package kafka

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Two sides know who published before: the coordinator, which gives the next epoch of the same producer, and the partitions. A coordinator
// that has lost its state gives another producer, whose fences fence nothing, or an epoch that was used before: a partition does not append
// a fence again that it already has, so there is more below it than the tail would show.
//
//	the same producer, no higher epoch    the coordinator lost its newest state: ask again until the epoch is higher
//	another producer                      it lost everything, or forgot after a week: fence the former producer in its own name

// formers are the highest epochs of the producers that have written the last record of a partition, by producer.
type formers map[int64]int16

// readFormers asks each partition who wrote its last record. A foreign producer is not fenced.
func (p *Publisher) readFormers(ctx context.Context) (formers, error) {
	found := formers{}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4) // each holds an answer of the broker in memory
	for _, s := range p.senders {
		group.Go(func() error {
			by, err := p.lastPublisher(ctx, s)
			if err != nil || by.producer < 0 {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			if epoch, known := found[by.producer]; !known || epoch < by.epoch {
				found[by.producer] = by.epoch
			}
			return nil
		})
	}
	return found, group.Wait()
}

// lastPublisher returns who wrote the last record of a partition; producer -1 if there is none, or if it is foreign.
func (p *Publisher) lastPublisher(ctx context.Context, s *sender) (by session, err error) {
	nobody := session{producer: -1}
	bounds, err := p.client.offsets(ctx, s.topic, s.partition)
	s.first, s.before = bounds.First, bounds.End
	if err != nil || bounds.First >= bounds.End {
		return nobody, err
	}
	last, found, err := p.client.batchAt(ctx, s.topic, s.partition, bounds.End-1)
	var gone *OffsetError
	if errors.As(err, &gone) { // deleted meanwhile
		return nobody, nil
	}
	for i := range found {
		if rec := &found[i].Record; found[i].Offset == bounds.End-1 && (rec.IsFence() || p.cfg.Ours == nil || p.cfg.Ours(rec)) {
			return last, nil
		}
	}
	return nobody, err
}

// openSession gets a session with a higher epoch than all former publishers.
func (p *Publisher) openSession(ctx context.Context, before formers) (s session, err error) {
	for {
		s, err = p.client.openSession(ctx, p.cfg.TransactionalID)
		epoch, known := before[s.producer]
		if err != nil || !known || s.epoch > epoch {
			return s, err
		}
		p.log.Warn("the brokers have lost which epoch this publisher has; asking for the next", "epoch", s.epoch, "former", epoch)
	}
}

// fenceAll gets a session and fences all former publishers.
//
// Another publisher may have fenced this producer in its own name, under the very epoch that the coordinator gives next. Its fence is not
// the partition's last record, and the partition takes ours for a repetition of it: then fenceAll asks for the next epoch.
func (p *Publisher) fenceAll(ctx context.Context, before formers) error {
	for {
		s, err := p.openSession(ctx, before)
		if err != nil {
			return err
		}
		p.session.Store(&s)
		used, err := p.fence(ctx, before)
		if err != nil || !used {
			return err
		}
		p.log.Warn("another publisher has fenced this one in its name; asking for the next epoch", "producer", s.producer, "epoch", s.epoch)
		before = formers{s.producer: s.epoch}
	}
}

// fenceFormers fences the producers of former publishers, each in its own name: a partition refuses a producer with an older epoch.
func (s *sender) fenceFormers(ctx context.Context, before formers) error {
	for _, producer := range slices.Sorted(maps.Keys(before)) {
		if producer == s.p.session.Load().producer || before[producer] == math.MaxInt16 {
			continue // there is no epoch after the last, and no coordinator gives the last
		}
		s.session, s.seq = session{producer: producer, epoch: before[producer] + 1}, 0
		if _, err := s.sendFence(ctx); err != nil {
			return err
		}
	}
	return nil
}

// sendFence sends a fence under the sender's session, and returns its offset.
func (s *sender) sendFence(ctx context.Context) (offset int64, err error) {
	b := s.p.newBatch()
	defer s.p.recycle(b)
	fence := newFence(s.p.cfg.FenceHeaders, time.Now())
	b.add(&fence, math.MaxInt)
	b.seal(s.codec, s.session, s.seq)
	s.seq = s.seq.plus(b.count)
	if offset, err = s.deliver(ctx, b); err == nil && offset >= 0 {
		s.ended(offset, b)
	}
	return offset, err
}
