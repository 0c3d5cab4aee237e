package kafka

import (
	"context"
	"errors"
)

// last is the end of what was published before a fence.
type last struct {
	record Record
	offset int64
	found  bool
}

// tail finds the last record below offset end that is not a fence. It looks backwards, in windows that grow: in most
// cases the record just below is it, and after many starts without anything published there are as many fences.
// Nothing found is an answer too: the partition is empty, or retention has deleted all but fences.
func (c *Client) tail(ctx context.Context, topic string, partition int32, end int64) (last, error) {
	bounds, err := c.offsets(ctx, topic, partition)
	if err != nil {
		return last{}, err
	}
	for window := int64(1); end > bounds.First; window *= 4 {
		from := max(bounds.First, end-window)
		found, err := c.lastBetween(ctx, topic, partition, from, end)
		var gone *OffsetError
		if errors.As(err, &gone) && gone.First > bounds.First {
			bounds = gone.Offsets // retention has gone on meanwhile
			continue
		}
		if err != nil || found.found {
			return found, err
		}
		end = from
	}
	return last{}, nil
}

// lastBetween reads forward: a broker hands out no batch backwards.
func (c *Client) lastBetween(ctx context.Context, topic string, partition int32, from, to int64) (last, error) {
	var found last
	err := c.ReadPartition(ctx, topic, partition, from, to, func(rec *Record, offset int64) error {
		if !rec.IsFence() {
			found = last{record: *rec, offset: offset, found: true}
		}
		return nil
	})
	return found, err
}
