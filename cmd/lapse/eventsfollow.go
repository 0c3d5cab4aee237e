package main

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"lapse/audit/store"
	"lapse/schemas"
)

// readOn prints new records after the readers' ends as they arrive.
func (c *consumer) readOn(ctx context.Context, readers []*partitionReader) error {
	records := make(chan schemas.Record)
	group, ctx := errgroup.WithContext(ctx)
	read := func(l *partitionReader) {
		group.Go(func() error {
			return store.Each(ctx, c.client.Reader(l.topic, l.partition, l.end, store.NoEnd), func(r *schemas.Record, offset int64) error {
				c.order.Next(l.topic, l.partition, r, offset)
				if !c.wants(r) {
					return nil
				}
				select {
				case records <- *r:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			})
		})
	}
	known := map[string]int{}
	for _, l := range readers {
		known[l.topic]++
		read(l)
	}
	group.Go(func() error { return c.readAdded(ctx, known, read) })
	group.Go(func() error {
		for {
			select {
			case r := <-records:
				if err := c.print(&r, positionOf(&r)); err != nil {
					return err
				}
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
	return group.Wait()
}

// addedEvery is how often --follow looks for new partitions.
const addedEvery = 5 * time.Second

// readAdded reads partitions that were added to the topics, from their beginning. known has the number of partitions by topic.
func (c *consumer) readAdded(ctx context.Context, known map[string]int, read func(*partitionReader)) error {
	tick := time.NewTicker(addedEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		for _, topic := range c.topics() {
			offsets, err := c.client.Offsets(ctx, topic)
			if err != nil {
				return err
			}
			for ; known[topic] < len(offsets); known[topic]++ {
				n := known[topic]
				read(&partitionReader{topic: topic, partition: int32(n), end: offsets[n].First})
			}
		}
	}
}
