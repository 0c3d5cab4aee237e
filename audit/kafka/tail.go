package kafka

import (
	"context"
	"errors"
	"fmt"
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
	return c.tail(ctx, topic, partition, end, ours, nil)
}

// tail is Tail, and says where the foreign records are.
func (c *Client) tail(
	ctx context.Context, topic string, partition int32, end int64, ours func(*Record) bool, foreign func(offset int64),
) (Tail, error) {
	t := Tail{Offset: -1}
	err := c.Backward(ctx, topic, partition, end, func(rec *Record, offset int64) (bool, error) {
		switch {
		case rec.IsFence():
		case ours == nil || ours(rec):
			t.Record, t.Offset, t.Found = *rec, offset, true
		default:
			t.Foreign++
			if foreign != nil {
				foreign(offset)
			}
		}
		return !t.Found, nil
	})
	if err != nil {
		return Tail{Offset: -1}, err
	}
	return t, nil
}

// Backward calls each with the records of a partition below offset end, the newest first, until each says that it has
// enough, or fails, or there are no more. End -1 is the present end. The record's memory is the callee's. Fences and
// foreign records are among them. A topic that is not there is a *MissingTopicError.
//
// A broker hands out no batch backwards, so it reads forward in windows, which grow while they are small: in most cases
// the record just below end is all that is wanted, and after a million foreign ones it takes seconds and not hours.
func (c *Client) Backward(
	ctx context.Context, topic string, partition int32, end int64,
	each func(rec *Record, offset int64) (goOn bool, err error),
) error {
	bounds, err := c.bounds(ctx, topic, partition)
	if err != nil {
		return err
	}
	if end < 0 {
		end = bounds.End
	}
	for width := int64(1); end > bounds.First; {
		from := max(bounds.First, end-width)
		w, err := c.window(ctx, topic, partition, from, end)
		var gone *OffsetError
		if errors.As(err, &gone) && gone.First > bounds.First {
			bounds = gone.Offsets // retention has gone on meanwhile
			continue
		}
		if err != nil {
			return err
		}
		for i := len(w.kept) - 1; i >= 0; i-- {
			if goOn, err := each(&w.kept[i].record, w.kept[i].offset); err != nil || !goOn {
				return err
			}
		}
		if w.dropped {
			from = w.kept[0].offset
			width = end - from
		} else {
			width *= 4
		}
		end = from
	}
	return nil
}

// What a window holds at most, lest large records fill the memory.
const (
	windowBytes   = 4 << 20
	windowRecords = 8192
)

// window is the end of a range of records: all of it, or as much as fits.
type window struct {
	kept    []read // ascending; at least one if the range has any
	bytes   int
	dropped bool // there were more before those kept
}

// window reads the range once.
func (c *Client) window(ctx context.Context, topic string, partition int32, from, to int64) (*window, error) {
	w := new(window)
	err := c.ReadPartition(ctx, topic, partition, from, to, func(rec *Record, offset int64) error {
		w.add(read{record: *rec, offset: offset})
		return nil
	})
	return w, err
}

// add takes a record in, and gives up the older half when there are too many.
func (w *window) add(rd read) {
	w.kept = append(w.kept, rd)
	w.bytes += footprint(&rd.record)
	if len(w.kept) == 1 || (w.bytes <= windowBytes && len(w.kept) <= windowRecords) {
		return
	}
	w.dropped = true
	first := 0
	for first < len(w.kept)-1 && (w.bytes > windowBytes/2 || len(w.kept)-first > windowRecords/2) {
		w.bytes -= footprint(&w.kept[first].record)
		first++
	}
	w.kept = append([]read(nil), w.kept[first:]...)
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
