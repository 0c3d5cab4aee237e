package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	kafkago "github.com/segmentio/kafka-go"
)

// ensureTopics makes what is missing and may be made, and returns the number of partitions of each topic.
//
//	crash between two topics    the next Open makes the other one
func (c *Client) ensureTopics(ctx context.Context, topics []Topic) (map[string]int, error) {
	found := make(map[string]int, len(topics))
	var errs []error
	for _, t := range topics {
		n, err := c.ensureTopic(ctx, t)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		found[t.Name] = n
	}
	return found, errors.Join(errs...)
}

func (c *Client) ensureTopic(ctx context.Context, t Topic) (int, error) {
	patience := c.timing.missing
	if t.Create {
		patience = 0 // asking for a topic that is there after all is harmless
	}
	n, err := c.partitions(ctx, t.Name, patience)
	var missing *MissingTopicError
	switch {
	case errors.As(err, &missing) && !t.Create:
		return 0, fmt.Errorf("%w: create it with %d partitions, or set topics.create, or grant DESCRIBE", err,
			max(t.Partitions, 1))
	case errors.As(err, &missing):
		if err := c.createTopic(ctx, t); err != nil {
			return 0, err
		}
		n, err = c.partitions(ctx, t.Name, c.timing.request)
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

// batchLimit is the largest batch that goes into a topic: wanted, or the topic's own limit if that is known and lower.
// Reading it needs a right that the login may lack; the broker then says so when a batch is too large.
func (c *Client) batchLimit(ctx context.Context, topic string, wanted int) int {
	const name = "max.message.bytes"
	ctx, cancel := context.WithTimeout(ctx, c.timing.request)
	defer cancel()
	resp, err := c.kafka.DescribeConfigs(ctx, &kafkago.DescribeConfigsRequest{
		Resources: []kafkago.DescribeConfigRequestResource{{
			ResourceType: kafkago.ResourceTypeTopic,
			ResourceName: topic,
			ConfigNames:  []string{name},
		}},
	})
	if err != nil {
		c.log.Debug("the topic's settings cannot be read", "topic", topic, "error", err)
		return wanted
	}
	for _, r := range resp.Resources {
		for _, entry := range r.ConfigEntries {
			if limit, err := strconv.Atoi(entry.ConfigValue); entry.ConfigName == name && err == nil && limit > 0 {
				return min(wanted, limit)
			}
		}
	}
	return wanted
}
