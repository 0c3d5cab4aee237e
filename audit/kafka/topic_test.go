package kafka_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"lapse/audit/kafka"
	"lapse/internal/kafkatest"
)

func TestAMissingTopicIsMadeAsConfigured(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Name()
	cfg := config(broker, topic)
	cfg.Topics[0] = kafka.Topic{
		Name: topic, Partitions: 3, Replication: 1, Create: true, Configs: map[string]string{"max.message.bytes": "4000"},
	}
	s := newSource(topic, 3, 100)
	s.publishAll(t, cfg)
	s.publishAll(t, cfg) // it is there the second time
	s.verify(t, broker)

	p := open(t, cfg)
	rec := s.record(0)
	rec.Value = make([]byte, 4000)
	if _, ok := p.Append(rec); ok || !errors.Is(p.Err(), kafka.ErrTooLarge) {
		t.Errorf("the topic's setting has no effect: %v", p.Err())
	}
}

func TestATopicThatIsNotAsConfiguredIsRefusedWithTheFix(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	two := kafkatest.Topic(t, 2)
	for name, c := range map[string]struct {
		topics []kafka.Topic
		want   string
	}{
		"missing":          {[]kafka.Topic{{Name: "never-made", Partitions: 6}}, "create it with 6 partitions"},
		"wrong partitions": {[]kafka.Topic{{Name: two, Partitions: 6, Create: true}}, "set topics.partitions to 2"},
		"replication": {
			[]kafka.Topic{{Name: "too-safe", Partitions: 1, Replication: 3, Create: true}}, "fewer brokers than replicas",
		},
		"named twice":   {[]kafka.Topic{{Name: two}, {Name: two}}, "named twice"},
		"no name":       {[]kafka.Topic{{}}, "without name"},
		"no partitions": {[]kafka.Topic{{Name: "x", Create: true}}, "partitions are not given"},
		"none":          {nil, "no topics"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(broker, two)
			cfg.Topics = c.topics
			cfg.SetTiming(kafka.Timing{Missing: 100 * time.Millisecond})
			p, err := kafka.Open(t.Context(), cfg)
			if err == nil {
				closePublisher(t, p)
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestWithoutATransactionalIDOrBrokersNothingIsOpened(t *testing.T) {
	t.Parallel()
	if _, err := kafka.Open(t.Context(), kafka.Config{
		Brokers: []string{"127.0.0.1:1"}, Topics: []kafka.Topic{{Name: "topic"}},
	}); err == nil || !strings.Contains(err.Error(), "transactional id") {
		t.Error(err)
	}
	if _, err := kafka.Open(t.Context(), kafka.Config{
		TransactionalID: "id", Topics: []kafka.Topic{{Name: "topic"}},
	}); err == nil || !strings.Contains(err.Error(), "kafka.brokers") {
		t.Error(err)
	}
}
