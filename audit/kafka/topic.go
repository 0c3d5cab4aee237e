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
	layout
	settings map[string]string // nil where they may not be read
	refused  error             // why not
}

// ensureTopics makes what is missing and may be made, and returns what each topic is like. It refuses those that cannot be
// used.
//
//	crash between two topics    the next Open makes the other one
func (c *Client) ensureTopics(ctx context.Context, topics []Topic) (map[string]found, error) {
	all := make(map[string]found, len(topics))
	var errs []error
	for i := range topics {
		t := &topics[i]
		err := c.ensureTopic(ctx, t)
		if err == nil { // looked at also if just made: somebody else may have made it
			all[t.Name], err = c.look(ctx, t)
		}
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// ensureTopic makes the topic if it is missing, and waits until it is there.
func (c *Client) ensureTopic(ctx context.Context, t *Topic) error {
	patience := c.timing.missing
	if t.Create {
		patience = 0 // asking for a topic that is there after all is harmless
	}
	_, err := c.partitions(ctx, t.Name, t.Partitions, patience)
	var missing *MissingTopicError
	switch {
	case errors.As(err, &missing) && !t.Create:
		return fmt.Errorf("%w: create it with %d partitions, or set topics.create, or grant DESCRIBE", err,
			max(t.Partitions, 1))
	case errors.As(err, &missing):
		if err := c.createTopic(ctx, t); err != nil {
			return err
		}
		_, err = c.partitions(ctx, t.Name, t.Partitions, c.timing.request)
	}
	return err
}

// look returns what a topic is like, and refuses one that cannot be used. Partitions that somebody has added are none of
// ours: keys go where they have always gone, and Kafka cannot take partitions away.
func (c *Client) look(ctx context.Context, t *Topic) (found, error) {
	seen, err := c.layout(ctx, t.Name, t.Partitions, c.timing.missing)
	if err != nil {
		return found{}, err
	}
	if seen.partitions < t.Partitions {
		return found{}, fmt.Errorf("kafka: topic %q has %d partitions, the configuration says %d: "+
			"set topics.partitions to %d, or name another topic; do not change the topic, keys would move",
			t.Name, seen.partitions, t.Partitions, seen.partitions)
	}
	f := found{layout: seen}
	if f.settings, f.refused, err = c.readSettings(ctx, t.Name); err != nil {
		return found{}, err
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
		return nil // an attempt whose answer was lost, or somebody else
	})
	if err == nil {
		c.log.Info("topic created", "topic", t.Name, "partitions", t.Partitions)
	}
	return err
}
