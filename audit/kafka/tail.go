package kafka

import (
	"context"
	"errors"
	"fmt"

	"lapse/schemas"
)

// tail is the end of what was published into a partition.
type tail struct {
	records   []Stored // the newest records of ours, ascending; empty if there are none
	foreign   int      // foreign records above the newest of ours
	uncounted int      // the foreign records above tailRequest.counted
}

// tailRequest says which tail is wanted.
type tailRequest struct {
	topic     string
	partition int32
	end       int64 // read below this offset; -1 is the current end

	ours    func(*schemas.Record) bool // nil takes every record that is no fence
	records int                        // how many of ours
	counted int64                      // up to this offset foreign records were counted before
}

// tailBytes is how much memory a partition's tail takes at most, unless its newest record alone is larger: with the 6+6+1
// partitions of the default configuration 13 MiB in the worst case.
const tailBytes = 1 << 20

// tail reads the newest of our records below an offset. It skips fences and any number of foreign records. It may run before the topic is
// fenced; then the result may be out of date at once. If the partition has not reached the offset, it waits for the records until ctx ends.
// The error for a missing topic is a *MissingTopicError.
//
// It reads in windows that grow. In most cases the record just below the end is the newest of ours, and after many starts
// with nothing published there are as many fences above it. Of a window only records of ours are kept, so a million
// foreign ones cost seconds, and no memory.
func (c *Client) tail(ctx context.Context, r tailRequest) (tail, error) {
	var t tail
	kept := newest{maxRecords: r.records, maxBytes: tailBytes}
	err := c.windows(ctx, r.topic, r.partition, r.end, func(w *window) (bool, error) {
		older := newest{maxRecords: r.records - len(kept.records), maxBytes: tailBytes - kept.bytes}
		foreign, uncounted := 0, 0 // above the newest of ours in this window
		err := c.ReadPartition(ctx, r.topic, r.partition, w.from, w.to, func(rec *schemas.Record, offset int64) error {
			switch {
			case rec.IsFence():
			case r.ours == nil || r.ours(rec):
				foreign, uncounted = 0, 0
				older.add(Stored{Record: *rec, Offset: offset})
			default:
				foreign++
				if offset > r.counted {
					uncounted++
				}
			}
			return nil
		})
		if err != nil {
			return false, err
		}
		if len(kept.records) == 0 {
			t.foreign += foreign
			t.uncounted += uncounted
		}
		complete := older.dropped
		if len(kept.records) > 0 && older.bytes > older.maxBytes {
			older = newest{} // a single record is larger than the remaining room
			complete = true
		}
		kept.records = append(older.records, kept.records...)
		kept.bytes += older.bytes
		return !complete && len(kept.records) < r.records, nil
	})
	if err != nil {
		return tail{}, err
	}
	t.records = kept.records
	return t, nil
}

// Backward calls each with the records of a partition below offset end, the newest first, until each returns false or an
// error, or there are no more. End -1 is the current end. The record's memory is the callee's. Fences and foreign records
// are among them. The error for a topic that is not there is a *MissingTopicError.
//
// A broker hands out no batch backwards. So Backward reads forward in windows, which grow as long as their records fit
// into windowBytes.
func (c *Client) Backward(
	ctx context.Context, topic string, partition int32, end int64,
	each func(rec *schemas.Record, offset int64) (goOn bool, err error),
) error {
	return c.windows(ctx, topic, partition, end, func(w *window) (bool, error) {
		kept := newest{maxBytes: windowBytes}
		err := c.ReadPartition(ctx, topic, partition, w.from, w.to, func(rec *schemas.Record, offset int64) error {
			kept.add(Stored{Record: *rec, Offset: offset})
			return nil
		})
		if err != nil {
			return false, err
		}
		for i := len(kept.records) - 1; i >= 0; i-- {
			if goOn, err := each(&kept.records[i].Record, kept.records[i].Offset); err != nil || !goOn {
				return false, err
			}
		}
		if kept.dropped {
			w.from = kept.records[0].Offset
		}
		return true, nil
	})
}

// windowBytes bounds the memory of one window. With 8 MB, and fetches of 1 MB, an auditor that began after half a million
// events since the last heartbeat had 226 MB at most; with these, 81 MB.
const windowBytes = 2 << 20

// window is a range of offsets. A caller that kept only its upper part raises from.
type window struct{ from, to int64 }

// windows calls each with ranges of offsets, from end down to the first offset, until each returns false. A range is four
// times as wide as what was kept of the one before. End -1 is the current end. If retention deletes the beginning of a
// range meanwhile, each fails with an *OffsetError, and is called again with what is left.
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

// newest keeps the newest of the added records: as many as it may, and always the last.
type newest struct {
	maxRecords int // 0: any number
	maxBytes   int

	records []Stored // ascending
	bytes   int
	dropped bool // a record was added that is not kept
}

func (n *newest) add(s Stored) {
	n.records = append(n.records, s)
	n.bytes += footprint(&s.Record)
	for len(n.records) > 1 && (n.bytes > n.maxBytes || n.maxRecords > 0 && len(n.records) > n.maxRecords) {
		n.bytes -= footprint(&n.records[0].Record)
		n.records[0] = Stored{} // frees its memory
		n.records = n.records[1:]
		n.dropped = true
	}
}

// footprint estimates the memory of a record.
func footprint(rec *schemas.Record) int {
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
		return Offsets{}, fmt.Errorf("read %s/%d: the topic has %d partitions", topic, partition, n)
	}
	return c.offsets(ctx, topic, partition)
}

// End is the offset that the next record of a partition gets. The error for a topic that is not there is a
// *MissingTopicError.
func (c *Client) End(ctx context.Context, topic string, partition int32) (int64, error) {
	bounds, err := c.bounds(ctx, topic, partition)
	return bounds.End, err
}
