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

// Who published before is known to the coordinator, which gives the next epoch of the same producer, and to the partitions. A
// coordinator that has lost its state gives another producer, whose fences fence nobody, or an epoch that somebody had: a
// fence that a partition has already is not appended again, and below it there is more than the tail would have.
//
//	the same producer, no higher epoch    a coordinator that lost its end: asked again until the epoch is higher
//	another producer                      it lost all, or forgot after a week: the former producer is fenced in its own name

// formers are the highest epochs of the producers that have written the last record of a partition, by producer.
type formers map[int64]int16

// readFormers asks each partition whose its last record is. One of somebody else's is nobody to fence.
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

// lastPublisher is whose the last record of a partition is; producer -1 if there is none, or if it is somebody else's.
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

// openSession gets a session above those of all former publishers.
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
// the partition's last record, and the partition takes ours for it: so the next epoch is asked for.
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

// fenceFormers fences producers that are not this publisher's, each in its own name: a partition refuses a producer with
// an older epoch.
func (s *sender) fenceFormers(ctx context.Context, before formers) error {
	for _, producer := range slices.Sorted(maps.Keys(before)) {
		if producer == s.p.session.Load().producer || before[producer] == math.MaxInt16 {
			continue // of the last epoch there is no next; no coordinator gives it
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
