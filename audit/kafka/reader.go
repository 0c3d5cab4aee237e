package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"lapse/audit/store"
	"lapse/schemas"
)

// Reader reads one partition in order, from any producer, compressed or not. It ignores transactions of other producers: an aborted record
// is a record. Use it in one goroutine. It need not be closed.
type Reader struct {
	client    *Client
	topic     string
	partition int32
	next      int64
	to        int64
	waiting   []Stored // decoded, not yet handed out
}

const (
	fetchBytes = 256 << 10
	fetchWait  = 500 * time.Millisecond
)

// Reader reads records from offset from up to offset to, which is not included.
func (c *Client) Reader(name string, partition int32, from, to int64) store.Reader {
	return c.reader(name, partition, from, to)
}

func (c *Client) reader(topic string, partition int32, from, to int64) *Reader {
	return &Reader{client: c, topic: topic, partition: partition, next: from, to: to}
}

// ReadPartition calls each with every record of a partition from offset from up to offset to, which is not included. It
// ends with the first error of each.
func (c *Client) ReadPartition(
	ctx context.Context, topic string, partition int32, from, to int64, each func(rec *schemas.Record, offset int64) error,
) error {
	return store.Each(ctx, c.reader(topic, partition, from, to), each)
}

// Next returns the next record and its offset, or io.EOF at the end. It waits for records that are not there yet, and tries
// again until ctx ends. Offsets grow, and may have gaps. The record's memory is the caller's. The error for an offset that
// the partition does not have is an *OffsetError: Next never skips records that retention has deleted.
func (r *Reader) Next(ctx context.Context) (schemas.Record, int64, error) {
	for len(r.waiting) == 0 {
		if r.to != NoEnd && r.next >= r.to {
			return schemas.Record{}, 0, io.EOF
		}
		what := fmt.Sprintf("read %s/%d at %d", r.topic, r.partition, r.next)
		if err := r.client.retry(ctx, what, r.fetch); err != nil {
			return schemas.Record{}, 0, err
		}
	}
	first := r.waiting[0]
	r.waiting = r.waiting[1:]
	return first.Record, first.Offset, nil
}

// fetch asks once. An answer without records is not an error.
func (r *Reader) fetch(ctx context.Context) error {
	resp, err := r.client.kafka.Fetch(ctx, &kafkago.FetchRequest{
		Topic:     r.topic,
		Partition: int(r.partition),
		Offset:    r.next,
		MinBytes:  1,
		MaxBytes:  fetchBytes,
		MaxWait:   fetchWait,
	})
	if err != nil {
		return err
	}
	if errors.Is(resp.Error, kafkago.OffsetOutOfRange) {
		return r.outOfRange(ctx)
	}
	if resp.Error != nil {
		return resp.Error
	}
	if stream, ok := resp.Records.(*protocol.RecordStream); ok {
		return r.take(stream)
	}
	return nil
}

// outOfRange is the error with the existing offsets. A leader that was just elected may not know yet how far its log is acknowledged, so an offset
// between the first and the end is tried again.
func (r *Reader) outOfRange(ctx context.Context) error {
	bounds, err := r.client.offsets(ctx, r.topic, r.partition)
	if err != nil {
		return err
	}
	if r.next >= bounds.First && r.next <= bounds.End {
		return kafkago.OffsetNotAvailable
	}
	return &OffsetError{Topic: r.topic, Partition: r.partition, Offset: r.next, Offsets: bounds}
}

// take copies the records out of an answer and advances next. Batches without records for us advance it as well: control
// batches, and batches that compaction has emptied but for their header.
func (r *Reader) take(stream *protocol.RecordStream) error {
	var taken []Stored
	next := r.next
	for _, records := range stream.Records {
		switch batch := records.(type) {
		case *protocol.ControlBatch:
			next = max(next, batch.BaseOffset+1)
			continue
		case *protocol.RecordBatch:
			if r.to != NoEnd && batch.BaseOffset >= r.to {
				next = max(next, r.to)
				continue // not wanted: do not copy it
			}
			next = max(next, batch.BaseOffset)
		}
		got, err := readAll(records)
		if err != nil {
			return err
		}
		for i := range got {
			got[i].Record.Topic, got[i].Record.Partition = r.topic, r.partition
		}
		if len(got) > 0 {
			next = max(next, got[len(got)-1].Offset+1)
		}
		taken = append(taken, got...)
	}
	if next == r.next && len(stream.Records) > 0 {
		// Compaction has emptied the batch, or its end. kafka-go does not tell how far it reaches. The next answer has the
		// batch again, or the one after it.
		next++
	}
	// A batch comes whole: it may begin before the first offset wanted and end after the last.
	taken = slices.DeleteFunc(taken, func(s Stored) bool {
		return s.Offset < r.next || (r.to != NoEnd && s.Offset >= r.to)
	})
	r.waiting, r.next = taken, next
	return nil
}

// readAll copies what a batch holds.
func readAll(records protocol.RecordReader) ([]Stored, error) {
	var all []Stored
	for {
		rec, err := records.ReadRecord()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		key, err := copyOf(rec.Key)
		if err != nil {
			return nil, err
		}
		value, err := copyOf(rec.Value)
		if err != nil {
			return nil, err
		}
		got := schemas.Record{Key: key, Value: value, Time: rec.Time.UTC(), Headers: make([]schemas.Header, len(rec.Headers))}
		for i, h := range rec.Headers {
			got.Headers[i] = schemas.Header{Key: h.Key, Value: h.Value}
		}
		all = append(all, Stored{Record: got, Offset: rec.Offset})
	}
}

func copyOf(b protocol.Bytes) ([]byte, error) {
	if b == nil {
		return nil, nil
	}
	all, err := protocol.ReadAll(b)
	return all, errors.Join(err, b.Close())
}
