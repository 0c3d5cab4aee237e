package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// follows looks whether a batch that was acknowledged at offset stands behind the one before it.
//
// A topic that was deleted and made again takes the next batch as if nothing had happened: it has not seen the producer
// before, and takes it with any sequence number (tried on Kafka 4.3.1). So the place tells:
//
//	the next offset        nobody else was here
//	one at or below        another topic, or one whose end was lost with a broker: ErrTopicReplaced
//	one far above          somebody else has written in between; or another topic that has grown beyond the old offset
//	                       meanwhile: then what stands at the old offset is not of this publisher
//
// Another topic that has grown to just the old offset is found by Publisher.watch.
func (l *lane) follows(ctx context.Context, b *batch, offset int64) error {
	before := l.acked.Load()
	if offset == nowhere {
		return nil
	}
	if offset <= before {
		return replaced(l.topic, l.partition, "a batch was appended at offset %d, and %d was acknowledged before", offset, before)
	}
	if between := offset - before - 1; before != nowhere && between > 0 {
		if err := l.stillThere(ctx, before, l.ackedBy); err != nil {
			return err
		}
		l.p.metrics.foreign.WithLabelValues(l.topic).Add(float64(between))
		if l.strange++; l.strange&(l.strange-1) == 0 { // the 1st, 2nd, 4th … time
			l.p.log.Warn("somebody else writes into this topic: find out who does, and take the right away (ACL: WRITE)",
				"topic", l.topic, "partition", l.partition, "records", between, "below", offset)
		}
	}
	l.acked.Store(offset + int64(b.count) - 1)
	l.ackedBy = l.session.producer
	return nil
}

// replaced words that a topic is not the one that it was.
func replaced(topic string, partition int32, what string, args ...any) error {
	return fmt.Errorf("kafka: %s/%d: %s: %w: somebody has deleted the topic and made it again, or the brokers have lost its "+
		"end (unclean leader election); start again, and what was lost is found out", topic, partition,
		fmt.Sprintf(what, args...), ErrTopicReplaced)
}

// stillThere looks whether the record at an acknowledged offset is of the producer that wrote it. What retention has deleted
// is taken to have been.
func (l *lane) stillThere(ctx context.Context, offset, by int64) error {
	producer, err := l.p.client.producerOf(ctx, l.topic, l.partition, offset)
	var gone *OffsetError
	switch {
	case errors.As(err, &gone) && offset < gone.First:
		return nil
	case errors.As(err, &gone):
		return replaced(l.topic, l.partition, "offset %d was acknowledged, and the end is %d", offset, gone.End)
	case err != nil:
		return err
	case producer != by:
		return replaced(l.topic, l.partition, "offset %d was acknowledged, and somebody else's record is there", offset)
	}
	return nil
}

// producerOf is the producer that has written the record at an offset; -1 for one that is not idempotent. An offset that is
// not there is an *OffsetError.
func (c *Client) producerOf(ctx context.Context, topic string, partition int32, offset int64) (int64, error) {
	var producer int64
	begin := time.Now()
	err := c.retry(ctx, fmt.Sprintf("look at %s/%d, offset %d", topic, partition, offset), func(ctx context.Context) (err error) {
		producer, err = c.askProducer(ctx, topic, partition, offset)
		return c.orMissing(ctx, topic, begin, err)
	})
	return producer, err
}

func (c *Client) askProducer(ctx context.Context, topic string, partition int32, offset int64) (int64, error) {
	resp, err := c.kafka.Fetch(ctx, &kafkago.FetchRequest{
		Topic: topic, Partition: int(partition), Offset: offset,
		MinBytes: 1, MaxBytes: 1, MaxWait: fetchWait, // a broker sends one batch at least, whole
	})
	switch {
	case err != nil:
		return 0, err
	case errors.Is(resp.Error, kafkago.OffsetOutOfRange):
		return 0, c.Reader(topic, partition, offset, NoEnd).outOfRange(ctx)
	case resp.Error != nil:
		return 0, resp.Error
	}
	stream, ok := resp.Records.(*protocol.RecordStream)
	if !ok || len(stream.Records) == 0 {
		return 0, errors.New("an answer without records")
	}
	switch batch := stream.Records[0].(type) {
	case *protocol.RecordBatch:
		return batch.ProducerID, nil
	case *protocol.ControlBatch:
		return batch.ProducerID, nil
	}
	return -1, nil // of before idempotent producers
}
