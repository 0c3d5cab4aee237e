package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Tail is the end of what we have published into a partition.
type Tail struct {
	Record Record // the last record of ours; only if Found
	Offset int64  // its offset; -1 if nothing was found

	// Found is false in an empty partition, where retention has deleted all but fences, and where everything is foreign.
	Found bool

	// Foreign counts the records above Record that are neither ours nor fences: somebody else has written them.
	Foreign int
}

// End is the offset that the next record of a partition gets. A topic that stays unknown is a *MissingTopicError.
func (c *Client) End(ctx context.Context, topic string, partition int32) (int64, error) {
	bounds, err := c.bounds(ctx, topic, partition)
	return bounds.End, err
}

// Tail finds the last record of ours below offset end; end -1 is the present end. It steps over fences and over any number
// of foreign records: those that ours says no to. A nil ours takes every record that is no fence. It reads only, so it
// may run before anybody is fenced; what it finds then may be out of date at once. A topic that is not there is a
// *MissingTopicError. Below an end that is not reached yet it waits for the records, as long as ctx lets it.
func (c *Client) Tail(
	ctx context.Context, topic string, partition int32, end int64, ours func(*Record) bool,
) (Tail, error) {
	t, _, err := c.tail(ctx, topic, partition, end, ours, nowhere)
	return t, err
}

// tail is Tail, and tells how many of the foreign records lie above offset counted.
//
// It looks in windows that grow: in most cases the record just below end is it, and after many starts without anything
// published there are as many fences. Of a window nothing is kept but the last record of ours, so a million foreign ones
// cost seconds, and no memory.
func (c *Client) tail(
	ctx context.Context, topic string, partition int32, end int64, ours func(*Record) bool, counted int64,
) (t Tail, fresh int, err error) {
	t = Tail{Offset: nowhere}
	err = c.windows(ctx, topic, partition, end, func(w *window) (bool, error) {
		in, above := Tail{Offset: nowhere}, 0
		err := c.ReadPartition(ctx, topic, partition, w.from, w.to, func(rec *Record, offset int64) error {
			switch {
			case rec.IsFence():
			case ours == nil || ours(rec):
				in, above = Tail{Record: *rec, Offset: offset, Found: true}, 0
			default:
				in.Foreign++
				if offset > counted {
					above++
				}
			}
			return nil
		})
		if err != nil {
			return false, err
		}
		in.Foreign += t.Foreign
		t, fresh = in, fresh+above
		return !t.Found, nil
	})
	if err != nil {
		return Tail{Offset: nowhere}, 0, err
	}
	return t, fresh, nil
}

// Backward calls each with the records of a partition below offset end, the newest first, until each says that it has
// enough, or fails, or there are no more. End -1 is the present end. The record's memory is the callee's. Fences and
// foreign records are among them. A topic that is not there is a *MissingTopicError.
//
// A broker hands out no batch backwards, so it reads forward in windows, which grow as long as what is in them fits.
func (c *Client) Backward(
	ctx context.Context, topic string, partition int32, end int64,
	each func(rec *Record, offset int64) (goOn bool, err error),
) error {
	return c.windows(ctx, topic, partition, end, func(w *window) (bool, error) {
		var kept shelf
		err := c.ReadPartition(ctx, topic, partition, w.from, w.to, func(rec *Record, offset int64) error {
			kept.add(read{record: *rec, offset: offset})
			return nil
		})
		if err != nil {
			return false, err
		}
		for i := len(kept.records) - 1; i >= 0; i-- {
			if goOn, err := each(&kept.records[i].record, kept.records[i].offset); err != nil || !goOn {
				return false, err
			}
		}
		if kept.dropped {
			w.from = kept.records[0].offset
		}
		return true, nil
	})
}

// window is a range of offsets. Whoever read only the upper part of it raises from.
type window struct{ from, to int64 }

// windows calls each with ranges from end down to the first offset, until each has enough. Each is four times as wide as
// the one before, or as much of it as was read. End -1 is the present end. If retention deletes the beginning of a range
// meanwhile, each fails with an *OffsetError, and gets what is left.
func (c *Client) windows(
	ctx context.Context, topic string, partition int32, end int64, each func(*window) (goOn bool, err error),
) error {
	bounds, err := c.bounds(ctx, topic, partition)
	if err != nil {
		return err
	}
	if end < 0 {
		end = bounds.End
	}
	for width := int64(1); end > bounds.First; {
		asked := max(bounds.First, end-width)
		w := &window{from: asked, to: end}
		goOn, err := each(w)
		var gone *OffsetError
		if errors.As(err, &gone) && gone.First > bounds.First {
			bounds = gone.Offsets
			continue
		}
		if err != nil || !goOn {
			return err
		}
		if w.from == asked {
			width *= 4
		} else {
			width = end - w.from
		}
		end = w.from
	}
	return nil
}

// shelfBytes is what a window is kept of at most, lest it fills the memory.
const shelfBytes = 8 << 20

// shelf is the end of a range of records: all of it, or as much as fits.
type shelf struct {
	records []read // ascending
	bytes   int
	dropped bool // there were more before those that are here
}

// add takes a record in, and gives up the older half when there are too many.
func (s *shelf) add(rd read) {
	s.records = append(s.records, rd)
	s.bytes += footprint(&rd.record)
	if s.bytes <= shelfBytes || len(s.records) == 1 {
		return
	}
	s.dropped = true
	first := 0
	for ; first < len(s.records)-1 && s.bytes > shelfBytes/2; first++ {
		s.bytes -= footprint(&s.records[first].record)
	}
	s.records = slices.Clone(s.records[first:]) // the memory of the others is free
}

// footprint is about what a record takes in memory.
func footprint(rec *Record) int {
	const structure = 200
	n := structure + len(rec.Key) + len(rec.Value)
	for i := range rec.Headers {
		n += structure/4 + len(rec.Headers[i].Key) + len(rec.Headers[i].Value)
	}
	return n
}

// bounds is offsets for a topic that may not be there.
func (c *Client) bounds(ctx context.Context, topic string, partition int32) (Offsets, error) {
	n, err := c.partitions(ctx, topic, int(partition)+1, c.timing.missing)
	switch {
	case err != nil:
		return Offsets{}, err
	case partition < 0 || int(partition) >= n:
		return Offsets{}, fmt.Errorf("kafka: topic %q has no partition %d: it has %d", topic, partition, n)
	}
	return c.offsets(ctx, topic, partition)
}
