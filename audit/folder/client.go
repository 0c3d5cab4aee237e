package folder

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"lapse/audit/store"
	"lapse/schemas"
)

// Client reads a folder's topics, while a publisher runs or without one. It changes nothing and takes no lock. It also sees what a
// publisher has written but not yet made durable: the publisher syncs all of that before it acknowledges anything.
type Client struct{ dir string }

var _ store.Client = (*Client)(nil)

// NewClient returns a client. It reads nothing.
func NewClient(dir string) *Client { return &Client{dir: dir} }

// Close does nothing: files are open only while they are read.
func (c *Client) Close() {}

// Known reports whether a topic exists.
func (c *Client) Known(_ context.Context, name string) (bool, error) {
	n, err := c.partitions(name)
	return n > 0, err
}

func (c *Client) partitions(name string) (int, error) {
	path, err := topicPath(c.dir, name)
	if err != nil {
		return 0, err
	}
	n, err := partitionsOf(path)
	return n, fileError(err)
}

// partition returns the folder of a partition.
func (c *Client) partition(name string, partition int32) string {
	return filepath.Join(c.dir, topicsDir, name, strconv.Itoa(int(partition)))
}

// Offsets returns the bounds of each partition of a topic.
func (c *Client) Offsets(ctx context.Context, name string) ([]store.Offsets, error) {
	n, err := c.partitions(name)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, &store.MissingError{Topic: name}
	}
	all := make([]store.Offsets, n)
	for i := range all {
		if all[i], err = c.bounds(ctx, name, int32(i)); err != nil {
			return nil, fileError(err)
		}
	}
	return all, nil
}

// bounds reads a partition's last segment as far as it has whole records.
func (c *Client) bounds(ctx context.Context, name string, partition int32) (store.Offsets, error) {
	for {
		if err := ctx.Err(); err != nil {
			return store.Offsets{}, context.Cause(ctx)
		}
		all, err := listSegments(c.partition(name, partition))
		switch {
		case isGone(err):
			return store.Offsets{}, &store.MissingError{Topic: name}
		case err != nil:
			return store.Offsets{}, err
		case len(all) == 0:
			return store.Offsets{}, nil
		}
		last := all[len(all)-1]
		content, err := readSegment(last.path)
		if isGone(err) {
			continue // retention
		}
		if err != nil {
			return store.Offsets{}, err
		}
		return store.Offsets{First: all[0].base, End: scan(content, last.base).next}, nil
	}
}

// Has reports whether a partition still has what was acknowledged up to an end. Records that retention has deleted count as present.
func (c *Client) Has(ctx context.Context, name string, partition int32, bounds store.Offsets, end store.End) (bool, error) {
	newest := end.Offset - 1
	switch {
	case end.Offset > bounds.End:
		return false, nil
	case newest < bounds.First:
		return true, nil
	}
	id, err := readIdentity(c.dir)
	if err != nil || id == nil {
		return false, fileError(err)
	}
	r := c.reader(name, partition, newest, end.Offset)
	s, err := r.next(ctx)
	var gone *store.OffsetError
	if errors.As(err, &gone) {
		return newest < gone.First, nil
	}
	return err == nil && end.Producer == id.producer() && s.epoch == end.Epoch, err
}

// Backward calls each with the records of a partition below offset end, the newest first. It holds a segment in memory.
func (c *Client) Backward(
	ctx context.Context, name string, partition int32, end int64, each func(rec *schemas.Record, offset int64) (goOn bool, err error),
) error {
	if n, err := c.partitions(name); err != nil {
		return err
	} else if int(partition) >= n {
		return c.noPartition(name, partition, n)
	}
	all, err := listSegments(c.partition(name, partition))
	if err != nil {
		return fileError(err)
	}
	for i := len(all) - 1; i >= 0; i-- {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		if end >= 0 && all[i].base >= end {
			continue
		}
		content, err := readSegment(all[i].path)
		if isGone(err) {
			return nil // retention: and with it all before it
		}
		if err != nil {
			return fileError(err)
		}
		found := scan(content, all[i].base)
		if i < len(all)-1 && (found.cut != nil || found.next != all[i+1].base) {
			return brokenIn(all[i].path, &found)
		}
		if goOn, err := backwardIn(&found, name, partition, end, each); err != nil || !goOn {
			return err
		}
	}
	return nil
}

func (c *Client) noPartition(name string, partition int32, n int) error {
	if n == 0 {
		return &store.MissingError{Topic: name}
	}
	return fileError(fmt.Errorf("read %s/%d: the topic has %d partitions", name, partition, n))
}

func backwardIn(
	found *scanned, name string, partition int32, end int64, each func(*schemas.Record, int64) (bool, error),
) (goOn bool, err error) {
	for i := len(found.frames) - 1; i >= 0; i-- {
		offset := found.next - int64(len(found.frames)-i)
		if end >= 0 && offset >= end {
			continue
		}
		s, err := decode(found.frames[i], name, partition)
		if err != nil {
			return false, fileError(err)
		}
		if goOn, err := each(&s.rec, offset); err != nil || !goOn {
			return false, err
		}
	}
	return true, nil
}

// brokenIn returns the error for a segment that is not the last, and does not end where the next one begins.
func brokenIn(path string, found *scanned) error {
	return corrupt(path, "after offset %d, at byte %d: %s: put it back from a copy of the folder", found.next-1, found.good, whyCut(found.cut))
}

func whyCut(err error) string {
	if err == nil {
		return "records are missing before the next segment"
	}
	return err.Error()
}

// Reader reads records from offset from up to offset to, which is not included.
func (c *Client) Reader(name string, partition int32, from, to int64) store.Reader {
	return c.reader(name, partition, from, to)
}
