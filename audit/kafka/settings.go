package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	kafkago "github.com/segmentio/kafka-go"
)

// The settings of a topic that are looked at.
const (
	settingCleanup = "cleanup.policy"
	settingTime    = "retention.ms"
	settingBytes   = "retention.bytes"
	settingBatch   = "max.message.bytes"
)

// A RetentionError says that a topic which must keep its records for ever does not.
type RetentionError struct {
	Topic    string
	Settings []string // what deletes records, as name=value
	Brokers  string
}

func (e *RetentionError) Error() string {
	return fmt.Sprintf("kafka: topic %q must keep its records for ever and has %s: run kafka-configs.sh --bootstrap-server %s "+
		"--alter --entity-type topics --entity-name %s --add-config %s=delete,%s=-1,%s=-1", e.Topic,
		strings.Join(e.Settings, ", "), e.Brokers, e.Topic, settingCleanup, settingTime, settingBytes)
}

// checkSettings reads what a topic is set to. It refuses a topic that would lose what must be kept, and warns of one
// whose events would be thrown away by compaction.
//
// Reading settings needs a right of its own, DESCRIBE_CONFIGS, which the login may lack: they are then unknown. They are
// not looked at again, so whoever changes them later is not noticed.
func (c *Client) checkSettings(ctx context.Context, t Topic) (map[string]string, error) {
	settings, err := c.settings(ctx, t.Name)
	switch {
	case ctx.Err() != nil:
		return nil, err
	case err != nil && t.Forever:
		c.log.Warn("the topic's settings cannot be read, so nobody has checked that it keeps its records for ever; "+
			"grant this login DESCRIBE_CONFIGS on it", "topic", t.Name, "error", err)
		return nil, nil
	case err != nil:
		c.log.Info("the topic's settings cannot be read", "topic", t.Name, "error", err)
		return nil, nil
	}
	compacted := slices.Contains(strings.Split(strings.ReplaceAll(settings[settingCleanup], " ", ""), ","), "compact")
	if !t.Forever {
		if compacted {
			c.log.Warn("the topic is compacted: of events with the same key, in whatever table, only the last is kept; set "+
				"cleanup.policy=delete", "topic", t.Name)
		}
		return settings, nil
	}
	var wrong []string
	if compacted {
		wrong = append(wrong, settingCleanup+"="+settings[settingCleanup])
	}
	for _, name := range []string{settingTime, settingBytes} {
		if value, known := settings[name]; known && value != "-1" {
			wrong = append(wrong, name+"="+value)
		}
	}
	if wrong != nil {
		return nil, &RetentionError{Topic: t.Name, Settings: wrong, Brokers: c.kafka.Addr.String()}
	}
	return settings, nil
}

// errNoSettings: the broker has answered, and does not say.
var errNoSettings = errors.New("the broker names no settings")

// settings asks for what a topic is set to, the brokers' defaults included.
func (c *Client) settings(ctx context.Context, topic string) (map[string]string, error) {
	values := map[string]string{}
	refused := errNoSettings
	err := c.retry(ctx, "settings of topic "+topic, func(ctx context.Context) error {
		resp, err := c.kafka.DescribeConfigs(ctx, &kafkago.DescribeConfigsRequest{
			Resources: []kafkago.DescribeConfigRequestResource{{
				ResourceType: kafkago.ResourceTypeTopic,
				ResourceName: topic,
				ConfigNames:  []string{settingCleanup, settingTime, settingBytes, settingBatch},
			}},
		})
		if err != nil {
			return err
		}
		for _, r := range resp.Resources {
			switch {
			case r.Error != nil && gradeOf(r.Error) == gradeRetry:
				return r.Error
			case r.Error != nil:
				refused = r.Error
			}
			for _, entry := range r.ConfigEntries {
				values[entry.ConfigName] = entry.ConfigValue
			}
		}
		return nil
	})
	if err == nil && len(values) == 0 {
		err = refused
	}
	return values, err
}

// batchLimit is the largest batch that goes into a topic: wanted, or the topic's own limit if that is known and lower.
// Where it is not known, the broker says so when a batch is too large.
func batchLimit(settings map[string]string, wanted int) int {
	if limit, err := strconv.Atoi(settings[settingBatch]); err == nil && limit > 0 {
		return min(wanted, limit)
	}
	return wanted
}
