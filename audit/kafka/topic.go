package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	kafkago "github.com/segmentio/kafka-go"
)

// topicState is a topic as the brokers have it.
type topicState struct {
	layout
	settings map[string]string // nil if they may not be read
	refused  error             // why they may not be read
}

// ensureTopics makes the topics that are missing and may be made, and returns the state of each. It refuses topics that
// cannot be used.
//
//	crash between two topics    the next Open makes the rest
func (c *Client) ensureTopics(ctx context.Context, topics []Topic) (map[string]topicState, error) {
	all := make(map[string]topicState, len(topics))
	var errs []error
	for i := range topics {
		t := &topics[i]
		err := c.ensureTopic(ctx, t)
		if err == nil { // inspected even if just made, because another process may have made it
			all[t.Name], err = c.inspect(ctx, t)
		}
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// ensureTopic makes the topic if it is missing, and waits until it is there.
func (c *Client) ensureTopic(ctx context.Context, t *Topic) error {
	patience := c.timing.missing
	if t.Create {
		patience = 0 // creating a topic that exists after all is harmless
	}
	_, err := c.partitions(ctx, t.Name, t.Partitions, patience)
	var missing *MissingTopicError
	switch {
	case errors.As(err, &missing) && !t.Create:
		return fmt.Errorf("find the topics: %w: create it with %d partitions, or set topics.create, or grant DESCRIBE", err,
			max(t.Partitions, 1))
	case errors.As(err, &missing):
		if err := c.createTopic(ctx, t); err != nil {
			return err
		}
		_, err = c.partitions(ctx, t.Name, t.Partitions, c.timing.request)
	}
	return err
}

// inspect returns the state of a topic, and refuses an unusable one. Added partitions are not used: keys stay in their partition, and Kafka
// cannot remove partitions.
func (c *Client) inspect(ctx context.Context, t *Topic) (topicState, error) {
	seen, err := c.layout(ctx, t.Name, t.Partitions, c.timing.missing)
	if err != nil {
		return topicState{}, err
	}
	if seen.partitions < t.Partitions {
		return topicState{}, fmt.Errorf("check topic %q: it has %d partitions, and %d are wanted: set topics.partitions to %d, or give it more, so "+
			"that later events of a row may be in another partition than its former ones: run kafka-topics.sh --bootstrap-server %s --alter "+
			"--topic %s --partitions %d", t.Name, seen.partitions, t.Partitions, seen.partitions, c.kafka.Addr, t.Name, t.Partitions)
	}
	f := topicState{layout: seen}
	if f.settings, f.refused, err = c.readSettings(ctx, t.Name); err != nil {
		return topicState{}, err
	}
	return f, c.checkRetention(t, f.settings)
}

func (c *Client) createTopic(ctx context.Context, t *Topic) error {
	req := kafkago.TopicConfig{
		Topic:             t.Name,
		NumPartitions:     t.Partitions,
		ReplicationFactor: t.Replication,
	}
	if t.Replication == 0 {
		req.ReplicationFactor = -1
	}
	for _, name := range slices.Sorted(maps.Keys(t.Configs)) {
		req.ConfigEntries = append(req.ConfigEntries,
			kafkago.ConfigEntry{ConfigName: name, ConfigValue: t.Configs[name]})
	}
	err := c.retry(ctx, "create topic "+t.Name, func(ctx context.Context) error {
		resp, err := c.kafka.CreateTopics(ctx, &kafkago.CreateTopicsRequest{Topics: []kafkago.TopicConfig{req}})
		if err != nil {
			return err
		}
		if err := resp.Errors[t.Name]; !errors.Is(err, kafkago.TopicAlreadyExists) {
			return err
		}
		return nil // created by an attempt whose answer was lost, or by another process
	})
	if err == nil {
		c.log.Info("topic created", "topic", t.Name, "partitions", t.Partitions)
	}
	return err
}
