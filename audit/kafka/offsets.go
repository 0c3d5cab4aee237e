package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// Offsets returns the bounds of each partition of a topic, by partition. It waits for leaders until ctx ends. The error for
// a topic that stays unknown is a *MissingTopicError.
func (c *Client) Offsets(ctx context.Context, topic string) ([]Offsets, error) {
	n, err := c.partitions(ctx, topic, 0, c.timing.missing)
	if err != nil {
		return nil, err
	}
	offsets := make([]Offsets, n)
	for i := range offsets {
		if offsets[i], err = c.offsets(ctx, topic, int32(i)); err != nil {
			return nil, err
		}
	}
	return offsets, nil
}

// Known reports whether the brokers know a topic now. A topic that was just created, or whose broker has just started, may be unknown for a while.
func (c *Client) Known(ctx context.Context, topic string) (bool, error) {
	_, err := c.partitions(ctx, topic, 0, 0)
	var missing *MissingTopicError
	if errors.As(err, &missing) {
		return false, nil
	}
	return err == nil, err
}

func (c *Client) offsets(ctx context.Context, topic string, partition int32) (Offsets, error) {
	var found Offsets
	what := fmt.Sprintf("read the offsets of %s/%d", topic, partition)
	begin := time.Now()
	err := c.retry(ctx, what, func(ctx context.Context) error {
		p := int(partition)
		resp, err := c.kafka.ListOffsets(ctx, &kafkago.ListOffsetsRequest{
			Topics: map[string][]kafkago.OffsetRequest{topic: {kafkago.FirstOffsetOf(p), kafkago.LastOffsetOf(p)}},
		})
		if err != nil {
			return c.orMissing(ctx, topic, begin, err)
		}
		if len(resp.Topics[topic]) != 1 {
			return errors.New("an answer for other partitions")
		}
		answer := resp.Topics[topic][0]
		found = Offsets{First: answer.FirstOffset, End: answer.LastOffset}
		return c.orMissing(ctx, topic, begin, answer.Error)
	})
	return found, err
}

// orMissing is err, or a *MissingTopicError if the topic was unknown since begin and still is. kafka-go has many errors for
// that, and returns the same ones while a leader moves.
func (c *Client) orMissing(ctx context.Context, topic string, begin time.Time, err error) error {
	if gradeOf(err) != gradeRetry || time.Since(begin) < c.timing.missing {
		return err
	}
	resp, asked := c.kafka.Metadata(ctx, &kafkago.MetadataRequest{Topics: []string{topic}})
	if asked == nil && len(resp.Topics) == 1 && errors.Is(resp.Topics[0].Error, kafkago.UnknownTopicOrPartition) {
		return &MissingTopicError{Topic: topic}
	}
	return err
}

// partitions is how many partitions a topic has. It waits until each of the first ones has a leader; first 0 means all of
// them. A topic that is unknown for as long as patience is missing: just after it was made, or a broker was started, it
// may be unknown for a moment.
func (c *Client) partitions(ctx context.Context, topic string, first int, patience time.Duration) (int, error) {
	found, err := c.layout(ctx, topic, first, patience)
	return found.partitions, err
}

// layout describes a topic on the brokers.
type layout struct {
	partitions int
	replicas   int // the fewest that one of the first partitions has
}

func (c *Client) layout(ctx context.Context, topic string, first int, patience time.Duration) (layout, error) {
	var seen layout
	begin := time.Now()
	err := c.retry(ctx, "read the metadata of topic "+topic, func(ctx context.Context) error {
		resp, err := c.kafka.Metadata(ctx, &kafkago.MetadataRequest{Topics: []string{topic}})
		if err != nil {
			return err
		}
		if len(resp.Topics) != 1 {
			return errors.New("an answer for other topics")
		}
		found := resp.Topics[0]
		if errors.Is(found.Error, kafkago.UnknownTopicOrPartition) && time.Since(begin) >= patience {
			return &MissingTopicError{Topic: topic}
		}
		if found.Error != nil {
			return found.Error
		}
		seen = layout{partitions: len(found.Partitions)}
		for _, p := range found.Partitions {
			if first != 0 && p.ID >= first {
				continue // an added partition, with no records of ours
			}
			if p.Error != nil {
				return fmt.Errorf("partition %d: %w", p.ID, p.Error)
			}
			if n := len(p.Replicas); seen.replicas == 0 || n < seen.replicas {
				seen.replicas = n
			}
		}
		return nil
	})
	return seen, err
}
