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

// The settings of a topic that are checked.
const (
	settingCleanup = "cleanup.policy"
	settingTime    = "retention.ms"
	settingBytes   = "retention.bytes"
	settingBatch   = "max.message.bytes"
	settingInsync  = "min.insync.replicas"
	settingStamp   = "message.timestamp.type"
)

// A RetentionError says that a topic loses records that it must keep: a topic of events is compacted, or a topic that must
// keep its records forever deletes or compacts them.
type RetentionError struct {
	Topic    string
	Forever  bool     // what was required
	Settings []string // the settings that remove records, as name=value
	Brokers  string
}

func (e *RetentionError) Error() string {
	must, fix := "must not be compacted, since of events with the same key, in whatever table, only the last would be kept,",
		settingCleanup+"=delete"
	if e.Forever {
		must, fix = "must keep its records forever", fix+","+settingTime+"=-1,"+settingBytes+"=-1"
	}
	return fmt.Sprintf("check topic %q: it %s and has %s: run %s", e.Topic, must, strings.Join(e.Settings, ", "),
		alter(e.Brokers, e.Topic, fix))
}

// alter is the command that changes a topic's settings.
func alter(brokers, topic, settings string) string {
	return fmt.Sprintf("kafka-configs.sh --bootstrap-server %s --alter --entity-type topics --entity-name %s --add-config %s",
		brokers, topic, settings)
}

// checkRetention refuses a topic that would lose records that must be kept. settings is nil if they may not be read.
func (c *Client) checkRetention(t *Topic, settings map[string]string) error {
	var wrong []string
	policy := settings[settingCleanup]
	if slices.Contains(strings.Split(strings.ReplaceAll(policy, " ", ""), ","), "compact") {
		wrong = append(wrong, settingCleanup+"="+policy)
	}
	if t.Forever {
		for _, name := range []string{settingTime, settingBytes} {
			if value, known := settings[name]; known && value != "-1" {
				wrong = append(wrong, name+"="+value)
			}
		}
	}
	if wrong == nil {
		return nil
	}
	return &RetentionError{Topic: t.Name, Forever: t.Forever, Settings: wrong, Brokers: c.kafka.Addr.String()}
}

// An UnsafeError says that a topic keeps fewer copies of an acknowledged record than it was configured to.
type UnsafeError struct {
	Topic    string
	Problems []string // each with what to do
}

func (e *UnsafeError) Error() string {
	return "a topic is less safe than asked for: " + strings.Join(e.Problems, "; ")
}

// A SizeError says that a topic does not take every record that may be published to it.
type SizeError struct {
	Topic   string
	Problem string // with what to do
}

func (e *SizeError) Error() string { return e.Problem }

// checkSafe refuses the topics that are not as safe as configured, or do not accept every record, all of them at once. Settings that may
// not be read pass.
func (c *Client) checkSafe(topics []Topic, seen map[string]topicState) error {
	var errs []error
	for i := range topics {
		t := &topics[i]
		if problems := c.safetyWarnings(t, seen[t.Name].layout, seen[t.Name].settings); t.Safe && problems != nil {
			errs = append(errs, &UnsafeError{Topic: t.Name, Problems: problems})
		}
		if problem := c.sizeWarning(t, seen[t.Name].settings); problem != "" {
			errs = append(errs, &SizeError{Topic: t.Name, Problem: problem})
		}
	}
	return errors.Join(errs...)
}

// safetyWarnings returns warnings about a topic that keeps fewer copies of a record than configured.
func (c *Client) safetyWarnings(t *Topic, seen layout, settings map[string]string) []string {
	var warnings []string
	if seen.replicas < t.Replication {
		warnings = append(warnings, fmt.Sprintf("topic %q has a partition with fewer replicas, %d, than the configuration says, "+
			"%d: give it more with kafka-reassign-partitions.sh, or set topics.replication to %d",
			t.Name, seen.replicas, t.Replication, seen.replicas))
	}
	wanted, _ := strconv.Atoi(t.Configs[settingInsync]) // 0 if none is configured
	if value, err := strconv.Atoi(settings[settingInsync]); err == nil && value < wanted {
		warnings = append(warnings, fmt.Sprintf("topic %q has %s=%d, and %d is wanted, so that an acknowledged record outlives "+
			"a broker: run %s", t.Name, settingInsync, value, wanted,
			alter(c.kafka.Addr.String(), t.Name, fmt.Sprintf("%s=%d", settingInsync, wanted))))
	}
	return warnings
}

// readSettings is settings for a login that may lack the right to read them, DESCRIBE_CONFIGS. Then settings is nil and refused is the
// reason. err is only set if ctx has ended.
func (c *Client) readSettings(ctx context.Context, topic string) (settings map[string]string, refused, err error) {
	settings, err = c.settings(ctx, topic)
	switch {
	case ctx.Err() != nil:
		return nil, nil, err
	case err != nil:
		return nil, err, nil
	}
	return settings, nil, nil
}

// errNoSettings: the broker answered without settings.
var errNoSettings = errors.New("the broker names no settings")

// settings asks for a topic's settings, the brokers' defaults included.
func (c *Client) settings(ctx context.Context, topic string) (map[string]string, error) {
	values := map[string]string{}
	refused := errNoSettings
	err := c.retry(ctx, "read the settings of topic "+topic, func(ctx context.Context) error {
		resp, err := c.kafka.DescribeConfigs(ctx, &kafkago.DescribeConfigsRequest{
			Resources: []kafkago.DescribeConfigRequestResource{{
				ResourceType: kafkago.ResourceTypeTopic,
				ResourceName: topic,
				ConfigNames:  []string{settingCleanup, settingTime, settingBytes, settingBatch, settingInsync, settingStamp},
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

// sizeWarning is a warning about a topic that does not accept every record, or "".
func (c *Client) sizeWarning(t *Topic, settings map[string]string) string {
	limit, err := strconv.Atoi(settings[settingBatch])
	if err != nil || limit >= t.Largest {
		return ""
	}
	return fmt.Sprintf("topic %q has %s=%d, and a record may have %d bytes: after the first that is too large nothing "+
		"would be published: run %s", t.Name, settingBatch, limit, t.Largest,
		alter(c.kafka.Addr.String(), t.Name, fmt.Sprintf("%s=%d", settingBatch, t.Largest)))
}

// batchLimit is the largest batch for a topic: wanted, or the topic's own limit if that is known and lower. If it is not known, the broker
// refuses a batch that is too large.
func batchLimit(settings map[string]string, wanted int) int {
	if limit, err := strconv.Atoi(settings[settingBatch]); err == nil && limit > 0 {
		return min(wanted, limit)
	}
	return wanted
}
