package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// checkOffset compares the offset at which a batch was acknowledged with that of the batch before.
//
// A topic that was deleted and created again accepts the next batch as if nothing had happened: it does not know the producer, and accepts
// any sequence number from it (tried on Kafka 4.3.1). The offset shows what happened:
//
//	the next offset        nothing
//	one at or below        another topic, or one whose end was lost with a broker: ErrTopicReplaced
//	one far above          a foreign producer has written in between, or it is another topic that has grown beyond the
//	                       old offset meanwhile: then the record at the old offset is not this publisher's
//
// Another topic that has grown to just the old offset is found by Publisher.watch.
func (s *sender) checkOffset(ctx context.Context, b *batch, offset int64) error {
	before := s.acked.Load()
	if offset == noOffset {
		return nil
	}
	if offset <= before {
		return topicReplaced(s.topic, s.partition, "a batch was appended at offset %d, and %d was acknowledged before", offset, before)
	}
	if between := offset - before - 1; before != noOffset && between > 0 {
		if err := s.checkRecord(ctx, before, s.ackedProducer); err != nil {
			return err
		}
		s.p.metrics.foreign.WithLabelValues(s.topic).Add(float64(between))
		if s.foreignGaps++; s.foreignGaps&(s.foreignGaps-1) == 0 { // the 1st, 2nd, 4th … time
			s.p.log.Warn("somebody else writes into this topic: find out who does, and take the right away (ACL: WRITE)",
				"topic", s.topic, "partition", s.partition, "records", between, "below", offset)
		}
	}
	s.acked.Store(offset + int64(b.count) - 1)
	s.ackedProducer = s.session.producer
	return nil
}

// topicReplaced is the error for a topic that is not the one it was.
func topicReplaced(topic string, partition int32, what string, args ...any) error {
	return fmt.Errorf("check %s/%d: %s: %w: somebody has deleted the topic and made it again, or the brokers have lost its "+
		"end (unclean leader election); start again, and what was lost is found out", topic, partition,
		fmt.Sprintf(what, args...), ErrTopicReplaced)
}

// checkRecord checks that the record at an acknowledged offset is of the producer that wrote it. A record that retention has deleted passes.
func (s *sender) checkRecord(ctx context.Context, offset, by int64) error {
	producer, _, err := s.p.client.producerOf(ctx, s.topic, s.partition, offset)
	var gone *OffsetError
	switch {
	case errors.As(err, &gone) && offset < gone.First:
		return nil
	case errors.As(err, &gone):
		return topicReplaced(s.topic, s.partition, "offset %d was acknowledged, and the end is %d", offset, gone.End)
	case err != nil:
		return err
	case producer != by:
		return topicReplaced(s.topic, s.partition, "offset %d was acknowledged, and somebody else's record is there", offset)
	}
	return nil
}

// Has reports whether a partition with these bounds still has what was acknowledged up to an end. Records that retention has deleted count
// as present.
func (c *Client) Has(ctx context.Context, topic string, partition int32, bounds Offsets, end End) (bool, error) {
	newest := end.Offset - 1
	switch {
	case end.Offset > bounds.End:
		return false, nil
	case newest < bounds.First:
		return true, nil
	}
	producer, epoch, err := c.producerOf(ctx, topic, partition, newest)
	var gone *OffsetError
	if errors.As(err, &gone) {
		return newest < gone.First, nil
	}
	return producer == end.Producer && int32(epoch) == end.Epoch, err
}

// producerOf returns the producer that wrote the record at an offset, and its epoch; -1 for one that is not idempotent. If the offset is not in the
// partition, the error is an *OffsetError.
func (c *Client) producerOf(
	ctx context.Context, topic string, partition int32, offset int64,
) (producer int64, epoch int16, err error) {
	by, _, err := c.batchAt(ctx, topic, partition, offset)
	return by.producer, by.epoch, err
}

// batchAt returns the batch with the record at an offset: its producer, and its records; none for a control batch.
func (c *Client) batchAt(ctx context.Context, topic string, partition int32, offset int64) (by session, found []Stored, err error) {
	begin := time.Now()
	what := fmt.Sprintf("read the producer of %s/%d at %d", topic, partition, offset)
	err = c.retry(ctx, what, func(ctx context.Context) (err error) {
		by, found, err = c.askBatch(ctx, topic, partition, offset)
		return c.orMissing(ctx, topic, begin, err)
	})
	return by, found, err
}

func (c *Client) askBatch(ctx context.Context, topic string, partition int32, offset int64) (by session, found []Stored, err error) {
	resp, err := c.kafka.Fetch(ctx, &kafkago.FetchRequest{
		Topic: topic, Partition: int(partition), Offset: offset,
		MinBytes: 1, MaxBytes: 1, MaxWait: fetchWait, // a broker sends at least one whole batch
	})
	switch {
	case err != nil:
		return by, nil, err
	case errors.Is(resp.Error, kafkago.OffsetOutOfRange):
		return by, nil, c.reader(topic, partition, offset, NoEnd).outOfRange(ctx)
	case resp.Error != nil:
		return by, nil, resp.Error
	}
	stream, ok := resp.Records.(*protocol.RecordStream)
	if !ok || len(stream.Records) == 0 {
		return by, nil, errors.New("an answer without records")
	}
	switch batch := stream.Records[0].(type) {
	case *protocol.RecordBatch:
		found, err = readAll(batch)
		return session{producer: batch.ProducerID, epoch: batch.ProducerEpoch}, found, err
	case *protocol.ControlBatch:
		return session{producer: batch.ProducerID, epoch: batch.ProducerEpoch}, nil, nil
	}
	return session{producer: -1, epoch: -1}, nil, nil // a batch from before idempotent producers
}
