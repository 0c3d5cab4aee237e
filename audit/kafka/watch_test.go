package kafka_test

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"lapse/audit/kafka"
	"lapse/internal/fixture"
	"lapse/internal/kafkatest"
)

// logBook is a log that may be read while it is written.
type logBook struct {
	mu   sync.Mutex
	kept bytes.Buffer
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept.Write(p)
}

func (l *logBook) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.kept.String(), what)
}

var waitFor = fixture.Eventually

func TestPartitionsThatSomebodyHasAddedAreLeftAlone(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 3)
	cfg, logged := config(broker, topic), new(logBook)
	cfg.Topics[0].Partitions = 3
	cfg.Logger = slog.New(slog.NewTextHandler(logged, nil))
	cfg.SetTiming(kafka.Timing{SettingsEvery: 50 * time.Millisecond})
	s := newSource(topic, 3, 300)
	p := open(t, cfg)
	if w := p.Warnings(); len(w) > 0 {
		t.Errorf("warnings: %q", w)
	}
	addPartitions(t, broker.Addr(), topic, 5)
	const says = "has 5 partitions and the configuration says 3"
	waitFor(t, "the running publisher warns", func() bool { return len(p.Warnings()) == 1 })
	if err := s.publish(t.Context(), p, nil); err != nil {
		t.Fatal(err)
	}
	closePublisher(t, p)
	if n := logged.count(says); n != 1 {
		t.Errorf("warned %d times, want once", n)
	}

	s.total = 600
	p = open(t, cfg)
	if w := p.Warnings(); len(w) != 1 || !strings.Contains(w[0], says) || !strings.Contains(w[0], topic) {
		t.Errorf("warnings: %q", w)
	}
	if _, ok := p.Fence(topic, 3); ok {
		t.Error("a partition that somebody has added is published to")
	}
	if err := s.publish(t.Context(), p, nil); err != nil {
		t.Fatal(err)
	}
	s.verify(t, broker)
	for _, rec := range kafkatest.ReadAllOn(t, broker, topic) {
		if rec.Partition >= 3 {
			t.Fatalf("a record in partition %d, key %q", rec.Partition, rec.Key)
		}
	}
}

func TestSettingsThatLoseRecordsEndThePublisherThatIsRunning(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	for name, c := range map[string]struct {
		forever        bool
		setting, value string
	}{
		"compaction of what is kept forever": {true, "cleanup.policy", "compact"},
		"retention of what is kept forever":  {true, "retention.ms", "3600000"},
		"compaction of events":               {false, "cleanup.policy", "compact,delete"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := kafkatest.Name()
			settings := map[string]string{"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
			if err := broker.CreateTopic(t.Context(), topic, 1, settings); err != nil {
				t.Fatal(err)
			}
			cfg := config(broker, topic)
			cfg.Topics[0].Forever = c.forever
			cfg.SetTiming(kafka.Timing{SettingsEvery: 20 * time.Millisecond})
			p := open(t, cfg)
			alter(t, broker.Addr(), topic, c.setting, c.value)
			err := waitErr(t, p)
			var refused *kafka.RetentionError
			if !errors.As(err, &refused) || refused.Forever != c.forever ||
				!slices.Equal(refused.Settings, []string{c.setting + "=" + c.value}) || !kafka.Terminal(err) {
				t.Errorf("%v", err)
			}
		})
	}
}

func TestFewerReplicasThanConfiguredAreWarnedOfAtEachLook(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 2)
	cfg, logged := config(broker, topic), new(logBook)
	cfg.Topics[0].Replication = 3
	cfg.Topics[0].Configs = map[string]string{"min.insync.replicas": "2"}
	cfg.Logger = slog.New(slog.NewTextHandler(logged, nil))
	cfg.SetTiming(kafka.Timing{SettingsEvery: 20 * time.Millisecond})
	p := open(t, cfg)
	if w := p.Warnings(); len(w) != 2 || !strings.Contains(w[0], "set topics.replication to 1") ||
		!strings.Contains(w[1], "--add-config min.insync.replicas=2") {
		t.Errorf("warnings: %q", w)
	}
	waitFor(t, "it is said again", func() bool { return logged.count("min.insync.replicas=1") >= 3 })
	alter(t, broker.Addr(), topic, "min.insync.replicas", "2")
	waitFor(t, "one is fixed", func() bool { return len(p.Warnings()) == 1 })
	if p.Err() != nil {
		t.Error(p.Err())
	}
}

// A log whose beginning somebody deletes used to be noticed at the next start, which refuses it.
func TestATopicThatIsKeptForEverAndLosesItsBeginningEndsThePublisher(t *testing.T) {
	t.Parallel()
	broker, topic := kafkatest.Broker(t), kafkatest.Name()
	if err := broker.CreateTopic(t.Context(), topic, 1, map[string]string{"retention.ms": "-1"}); err != nil {
		t.Fatal(err)
	}
	cfg := config(broker, topic)
	s := newSource(topic, 1, 20)
	s.publishAll(t, cfg)
	deleteRecords(t, broker.Addr(), topic, 3)
	p := open(t, cfg)
	deleteRecords(t, broker.Addr(), topic, 5)
	if err := p.CheckEnds(t.Context()); err != nil {
		t.Errorf("a topic that may lose its beginning: %v", err)
	}
	closePublisher(t, p)

	cfg.Topics[0].Forever = true
	p = open(t, cfg)
	if err := p.CheckEnds(t.Context()); err != nil {
		t.Errorf("a beginning that was lost before: %v", err)
	}
	deleteRecords(t, broker.Addr(), topic, 8)
	if err := p.CheckEnds(t.Context()); !errors.Is(err, kafka.ErrTopicReplaced) || !strings.Contains(err.Error(), "below offset 8 were deleted") {
		t.Errorf("got %v", err)
	}
}

func TestATopicThatStampsRecordsItselfIsWarnedOf(t *testing.T) {
	t.Parallel()
	broker, topic := kafkatest.Broker(t), kafkatest.Name()
	if err := broker.CreateTopic(t.Context(), topic, 1, map[string]string{"message.timestamp.type": "LogAppendTime"}); err != nil {
		t.Fatal(err)
	}
	if w := open(t, config(broker, topic)).Warnings(); len(w) != 1 || !strings.Contains(w[0], "message.timestamp.type=CreateTime") {
		t.Errorf("warnings: %q", w)
	}
}
