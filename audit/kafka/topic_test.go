package kafka_test

import (
	"bytes"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"lapse/audit/kafka"
	"lapse/internal/kafkaserver"
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

// keeping is a configuration for a topic that must be kept forever, and what is logged under it.
func keeping(broker *kafkaserver.Server, topic string) (kafka.Config, *bytes.Buffer) {
	cfg, logged := config(broker, topic), new(bytes.Buffer)
	cfg.Topics[0] = kafka.Topic{Name: topic, Partitions: 1, Forever: true}
	cfg.Logger = slog.New(slog.NewTextHandler(logged, nil))
	return cfg, logged
}

func TestATopicThatMustBeKeptForEverIsRefusedIfItIsNot(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	forever := map[string]string{"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
	for name, c := range map[string]struct {
		settings map[string]string
		wrong    []string
	}{
		"the broker's defaults": {nil, []string{"retention.ms=604800000"}},
		"by age":                {map[string]string{"retention.ms": "315360000000"}, []string{"retention.ms=315360000000"}},
		"by size":               {map[string]string{"retention.bytes": "1000000"}, []string{"retention.bytes=1000000"}},
		"compacted":             {map[string]string{"cleanup.policy": "compact"}, []string{"cleanup.policy=compact"}},
		"by all of it": {
			map[string]string{"cleanup.policy": "compact,delete", "retention.ms": "1000", "retention.bytes": "1000"},
			[]string{"cleanup.policy=compact,delete", "retention.ms=1000", "retention.bytes=1000"},
		},
		"not at all": {forever, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			settings := maps.Clone(forever)
			maps.Copy(settings, c.settings)
			if name == "the broker's defaults" {
				settings = nil
			}
			topic := kafkatest.Name()
			if err := broker.CreateTopic(t.Context(), topic, 1, settings); err != nil {
				t.Fatal(err)
			}
			cfg, _ := keeping(broker, topic)
			p, err := kafka.Open(t.Context(), cfg)
			if err == nil {
				closePublisher(t, p)
			}
			var refused *kafka.RetentionError
			switch {
			case c.wrong == nil && err != nil:
				t.Error(err)
			case c.wrong == nil:
			case !errors.As(err, &refused) || refused.Topic != topic || !slices.Equal(refused.Settings, c.wrong):
				t.Errorf("%v, want %q", err, c.wrong)
			case !strings.Contains(err.Error(), "kafka-configs.sh --bootstrap-server "+broker.Addr()+" --alter --entity-type "+
				"topics --entity-name "+topic+" --add-config cleanup.policy=delete,retention.ms=-1,retention.bytes=-1"):
				t.Errorf("%v does not say what to do", err)
			case len(kafkatest.ReadAllOn(t, broker, topic)) > 0:
				t.Error("it was written into all the same")
			}
		})
	}
}

func TestACompactedTopicOfEventsIsRefused(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	for _, policy := range []string{"compact", "compact,delete"} {
		t.Run(policy, func(t *testing.T) {
			t.Parallel()
			topic := kafkatest.Name()
			if err := broker.CreateTopic(t.Context(), topic, 1, map[string]string{"cleanup.policy": policy}); err != nil {
				t.Fatal(err)
			}
			p, err := kafka.Open(t.Context(), config(broker, topic))
			if err == nil {
				closePublisher(t, p)
			}
			var refused *kafka.RetentionError
			if !errors.As(err, &refused) || refused.Topic != topic || refused.Settings[0] != "cleanup.policy="+policy ||
				!strings.HasSuffix(err.Error(), " --entity-name "+topic+" --add-config cleanup.policy=delete") {
				t.Errorf("%v", err)
			}
			if len(kafkatest.ReadAllOn(t, broker, topic)) > 0 {
				t.Error("it was written into all the same")
			}
		})
	}
}

// The right to read a topic's settings is one of its own.
func TestATopicWhoseSettingsMayNotBeReadIsTakenWithAWarning(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Solo(t, kafkaserver.Options{Settings: map[string]string{
		"authorizer.class.name":          "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
		"allow.everyone.if.no.acl.found": "true",
	}})
	topic := kafkatest.TopicOn(t, broker, 1) // with the broker's defaults, which are not forever
	cfg, logged := keeping(broker, topic)
	if _, err := kafka.Open(t.Context(), cfg); !errors.As(err, new(*kafka.RetentionError)) {
		t.Fatalf("with the right to read its settings: %v", err)
	}
	transport := &kafkago.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafkago.Client{Addr: kafkago.TCP(broker.Addr()), Transport: transport}
	acl := func(operation kafkago.ACLOperationType, permission kafkago.ACLPermissionType) kafkago.ACLEntry {
		return kafkago.ACLEntry{
			ResourceType: kafkago.ResourceTypeTopic, ResourceName: topic, ResourcePatternType: kafkago.PatternTypeLiteral,
			Principal: "User:ANONYMOUS", Host: "*", Operation: operation, PermissionType: permission,
		}
	}
	answer, err := client.CreateACLs(t.Context(), &kafkago.CreateACLsRequest{ACLs: []kafkago.ACLEntry{
		acl(kafkago.ACLOperationTypeAll, kafkago.ACLPermissionTypeAllow),
		acl(kafkago.ACLOperationTypeDescribeConfigs, kafkago.ACLPermissionTypeDeny),
	}})
	if err == nil {
		err = errors.Join(answer.Errors...)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := newSource(topic, 1, 10)
	cfg.Topics[0].Forever = true
	s.publishAll(t, cfg)
	s.verify(t, broker)
	if said := logged.String(); !strings.Contains(said, "grant this login DESCRIBE_CONFIGS") {
		t.Errorf("no warning in:\n%s", said)
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

func TestATopicThatIsNotAsSafeAsItMustBeIsRefusedWithTheFix(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 2)
	cfg := config(broker, topic)
	cfg.Topics[0] = kafka.Topic{
		Name: topic, Partitions: 2, Replication: 3, Safe: true, Configs: map[string]string{"min.insync.replicas": "2"},
	}
	p, err := kafka.Open(t.Context(), cfg)
	if err == nil {
		closePublisher(t, p)
	}
	var unsafe *kafka.UnsafeError
	if !errors.As(err, &unsafe) || unsafe.Topic != topic || len(unsafe.Problems) != 2 || !kafka.Terminal(err) ||
		!strings.Contains(err.Error(), "kafka-reassign-partitions.sh, or set topics.replication to 1") ||
		!strings.Contains(err.Error(), "--entity-name "+topic+" --add-config min.insync.replicas=2") {
		t.Errorf("%v", err)
	}
	if len(kafkatest.ReadAllOn(t, broker, topic)) > 0 {
		t.Error("it was written into all the same")
	}
	cfg.Topics[0].Replication, cfg.Topics[0].Configs = 1, nil
	open(t, cfg)
}

func TestATopicThatDoesNotTakeEveryRecordIsRefused(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Name()
	if err := broker.CreateTopic(t.Context(), topic, 1, map[string]string{"max.message.bytes": "50000"}); err != nil {
		t.Fatal(err)
	}
	cfg := config(broker, topic)
	for largest, refused := range map[int]bool{0: false, 50_000: false, 50_001: true} {
		cfg.Topics[0].Largest = largest
		if !refused {
			if w := open(t, cfg).Warnings(); len(w) > 0 {
				t.Errorf("%d bytes: %q", largest, w)
			}
			continue
		}
		p, err := kafka.Open(t.Context(), cfg)
		if err == nil {
			_ = p.Close(t.Context())
		}
		var small *kafka.SizeError
		if !errors.As(err, &small) || small.Topic != topic || !kafka.Terminal(err) || !strings.Contains(err.Error(), "--add-config max.message.bytes=50001") {
			t.Errorf("%d bytes: %v", largest, err)
		}
	}
}
