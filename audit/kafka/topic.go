package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	kafkago "github.com/segmentio/kafka-go"
)

// found is what a topic is like.
type found struct {
	partitions int
	settings   map[string]string // nil where they may not be read
}

// ensureTopics makes what is missing and may be made, and returns what each topic is like.
//
//	crash between two topics    the next Open makes the other one
func (c *Client) ensureTopics(ctx context.Context, topics []Topic) (map[string]found, error) {
	all := make(map[string]found, len(topics))
	var errs []error
	for _, t := range topics {
		n, err := c.ensureTopic(ctx, t)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		settings, err := c.checkSettings(ctx, t) // also of a topic just made: somebody else may have made it
		if err != nil {
			errs = append(errs, err)
			continue
		}
		all[t.Name] = found{partitions: n, settings: settings}
	}
	return all, errors.Join(errs...)
}

func (c *Client) ensureTopic(ctx context.Context, t Topic) (int, error) {
	patience := c.timing.missing
	if t.Create {
		patience = 0 // asking for a topic that is there after all is harmless
	}
	n, err := c.partitions(ctx, t.Name, t.Partitions, patience)
	var missing *MissingTopicError
	switch {
	case errors.As(err, &missing) && !t.Create:
		return 0, fmt.Errorf("%w: create it with %d partitions, or set topics.create, or grant DESCRIBE", err,
			max(t.Partitions, 1))
	case errors.As(err, &missing):
		if err := c.createTopic(ctx, t); err != nil {
			return 0, err
		}
		n, err = c.partitions(ctx, t.Name, t.Partitions, c.timing.request)
	}
	if err != nil {
		return 0, err
	}
	if t.Partitions != 0 && n != t.Partitions {
		return 0, fmt.Errorf("kafka: topic %q has %d partitions, the configuration says %d: "+
			"set topics.partitions to %d, or name another topic; do not change the topic, keys would move",
			t.Name, n, t.Partitions, n)
	}
	return n, nil
}

func (c *Client) createTopic(ctx context.Context, t Topic) error {
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
		return nil // an attempt whose answer was lost, or somebody else
	})
	if err == nil {
		c.log.Info("topic created", "topic", t.Name, "partitions", t.Partitions)
	}
	return err
}
