package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	kafkago "github.com/segmentio/kafka-go"
)

// Offsets are the bounds of a partition: First is the oldest offset that retention has left, End the offset that the next
// record gets. First equals End in an empty partition.
type Offsets struct{ First, End int64 }

// Offsets returns the bounds of each partition of a topic, by partition. It waits for leaders as long as ctx lets it; a
// topic that stays unknown is a *MissingTopicError.
func (c *Client) Offsets(ctx context.Context, topic string) ([]Offsets, error) {
	n, err := c.partitions(ctx, topic, c.timing.missing)
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

func (c *Client) offsets(ctx context.Context, topic string, partition int32) (Offsets, error) {
	var found Offsets
	what := fmt.Sprintf("offsets of %s/%d", topic, partition)
	err := c.retry(ctx, what, func(ctx context.Context) error {
		p := int(partition)
		resp, err := c.kafka.ListOffsets(ctx, &kafkago.ListOffsetsRequest{
			Topics: map[string][]kafkago.OffsetRequest{topic: {kafkago.FirstOffsetOf(p), kafkago.LastOffsetOf(p)}},
		})
		if err != nil {
			return err
		}
		if len(resp.Topics[topic]) != 1 {
			return errors.New("an answer for other partitions")
		}
		answer := resp.Topics[topic][0]
		found = Offsets{First: answer.FirstOffset, End: answer.LastOffset}
		return answer.Error
	})
	return found, err
}

// partitions is how many partitions a topic has, once each of them has a leader. A topic that stays unknown for as long
// as patience is taken to be missing: just after it was made, or a broker was started, it is unknown for a moment.
func (c *Client) partitions(ctx context.Context, topic string, patience time.Duration) (int, error) {
	n := 0
	begin := time.Now()
	err := c.retry(ctx, "metadata of topic "+topic, func(ctx context.Context) error {
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
		for _, p := range found.Partitions {
			if p.Error != nil {
				return fmt.Errorf("partition %d: %w", p.ID, p.Error)
			}
		}
		n = len(found.Partitions)
		return nil
	})
	return n, err
}
