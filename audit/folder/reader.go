package folder

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"lapse/audit/store"
	"lapse/internal/backoff"
	"lapse/schemas"
)

// reader reads one partition in order. Files are open only while it reads from them.
type reader struct {
	client    *Client
	topic     string
	partition int32
	offset    int64 // of the next record
	to        int64

	segment segment // the present segment; the zero segment before the first
	at      int64   // of its file: where buf ends
	seen    int64   // the offset after the last record read from it
	buf     []byte  // read bytes that are not cut into records yet
}

const (
	readBytes = 256 << 10
	// pollEvery is how often a reader checks whether a partition has grown.
	pollEvery = 100 * time.Millisecond
)

func (c *Client) reader(name string, partition int32, from, to int64) *reader {
	return &reader{client: c, topic: name, partition: partition, offset: from, to: to}
}

// Next returns the next record and its offset, or io.EOF at the end.
func (r *reader) Next(ctx context.Context) (schemas.Record, int64, error) {
	s, err := r.next(ctx)
	return s.rec, s.offset, err
}

func (r *reader) next(ctx context.Context) (stored, error) {
	for {
		if r.to != store.NoEnd && r.offset >= r.to {
			return stored{}, io.EOF
		}
		s, err := r.cut()
		if err == nil {
			return s, nil
		}
		if !errors.Is(err, errShort) {
			return stored{}, fileError(err)
		}
		more, err := r.fill()
		if err != nil {
			return stored{}, fileError(err)
		}
		if more {
			continue
		}
		if err := backoff.Sleep(ctx, pollEvery); err != nil {
			return stored{}, context.Cause(ctx)
		}
	}
}

// cut takes the next wanted record from the read bytes. errShort says that more must be read.
func (r *reader) cut() (stored, error) {
	for {
		frame, rest, err := cutFrame(r.buf)
		if err != nil {
			return stored{}, errShort // a broken record may be half written: fill decides
		}
		offset, err := offsetOf(frame)
		if err != nil || offset > r.offset {
			return stored{}, corrupt(r.segment.path, "the record at offset %d is missing", r.offset)
		}
		r.buf, r.seen = rest, offset+1
		if offset == r.offset {
			s, err := decode(frame, r.topic, r.partition)
			if err != nil {
				return s, corrupt(r.segment.path, "the record at offset %d is none", offset)
			}
			r.offset++
			return s, nil
		}
	}
}

// fill reads more. more is false at the partition's end.
func (r *reader) fill() (more bool, err error) {
	if r.segment.path != "" {
		read, err := r.fillFrom()
		if read || err != nil && !isGone(err) {
			return read, err
		}
	}
	dir := r.client.partition(r.topic, r.partition)
	all, err := listSegments(dir)
	switch {
	case isGone(err):
		return false, &store.MissingError{Topic: r.topic}
	case err != nil:
		return false, err
	case len(all) == 0:
		return false, nil
	case r.offset < all[0].base:
		return false, r.outOfRange()
	}
	i := len(all) - 1
	for all[i].base > r.offset {
		i--
	}
	if r.segment == all[i] {
		if i == len(all)-1 {
			if r.seen < r.offset {
				return false, r.outOfRange()
			}
			return false, nil
		}
		// The segment is no longer the last one, so it is complete now: it was not when it was read.
		if read, err := r.fillFrom(); read || err != nil {
			return read, err
		}
		content, err := readSegment(r.segment.path)
		if err != nil {
			return false, err
		}
		found := scan(content, r.segment.base)
		return false, brokenIn(r.segment.path, &found)
	}
	r.segment, r.at, r.seen, r.buf = all[i], headerSize, all[i].base, nil
	return true, nil
}

// fillFrom reads more of the segment. read is false if there is no further whole record in it. A record that looked broken may have been
// half written when it was read, so it is read again.
func (r *reader) fillFrom() (read bool, err error) {
	file, err := os.Open(r.segment.path)
	if err != nil {
		return false, err
	}
	defer func() { _ = file.Close() }() // it was only read
	r.at -= int64(len(r.buf))
	for want := readBytes; ; want *= 2 {
		r.buf = slices.Grow(r.buf[:0], want)[:want]
		n, err := file.ReadAt(r.buf, r.at)
		r.buf = r.buf[:n]
		if err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		_, _, cut := cutFrame(r.buf)
		if cut == nil || n < want || !errors.Is(cut, errShort) {
			r.at += int64(n)
			return cut == nil, nil
		}
	}
}

func (r *reader) outOfRange() error {
	all, err := r.client.bounds(context.Background(), r.topic, r.partition)
	if err != nil {
		return err
	}
	return &store.OffsetError{Topic: r.topic, Partition: r.partition, Offset: r.offset, Offsets: all}
}
