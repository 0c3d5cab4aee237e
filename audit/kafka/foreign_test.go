package kafka_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"lapse/audit/kafka"
	"lapse/internal/kafkatest"
)

// foreignRecords is what the metric says of a topic.
func foreignRecords(t *testing.T, m *kafka.Metrics, topic string) float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(m.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "lapse_foreign_records_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			if metric.GetLabel()[0].GetValue() == topic {
				return metric.GetCounter().GetValue()
			}
		}
	}
	return 0
}

func TestForeignRecordsAreSteppedOverAndCounted(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 1)
	cfg, logged := config(broker, topic), new(bytes.Buffer)
	cfg.Ours, cfg.Metrics, cfg.Logger = isNumber, kafka.NewMetrics(), slog.New(slog.NewTextHandler(logged, nil))
	s := newSource(topic, 1, 50)
	s.publishAll(t, cfg)

	flood(t, broker.Addr(), topic, 1, "hello")
	for range 2 { // the second finds the same one again, below two fences
		p := open(t, cfg)
		if rec, offset, ok := last(p, topic, 0); !ok || string(rec.Value) != "49" || offset != 50 {
			t.Errorf("the tail is %q at %d (%t), want 49 at 50", rec.Value, offset, ok)
		}
		closePublisher(t, p)
	}
	if n := foreignRecords(t, cfg.Metrics, topic); n != 1 {
		t.Errorf("%v foreign records counted, want 1", n)
	}
	flood(t, broker.Addr(), topic, 2, "hello")
	p := open(t, cfg)
	flood(t, broker.Addr(), topic, 4, "hello") // while it runs
	rec := s.record(0)
	rec.Value = []byte("50")
	waitAcked(t, p, mustAppend(t, p, rec))
	if n := foreignRecords(t, cfg.Metrics, topic); n != 7 {
		t.Errorf("%v foreign records counted, want 7", n)
	}
	closePublisher(t, p)
	if rec, _, _ := last(open(t, cfg), topic, 0); string(rec.Value) != "50" {
		t.Errorf("the tail is %q, want 50", rec.Value)
	}
	said := logged.String()
	if !strings.Contains(said, "are skipped") || !strings.Contains(said, "somebody else writes into this topic") ||
		strings.Contains(said, "hello") {
		t.Errorf("logged:\n%s", said)
	}
}

func TestATopicOfNothingButForeignRecordsHasNoTail(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 1)
	flood(t, broker.Addr(), topic, 1000, "hello")
	cfg := config(broker, topic)
	cfg.Ours, cfg.Metrics = isNumber, kafka.NewMetrics()
	if rec, _, ok := last(open(t, cfg), topic, 0); ok {
		t.Errorf("%+v is a tail", rec)
	}
	if n := foreignRecords(t, cfg.Metrics, topic); n != 1000 {
		t.Errorf("%v counted", n)
	}
}

func TestTheTailIsFoundBehindAMillionForeignRecords(t *testing.T) {
	t.Parallel()
	const million = 1_000_000
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 1)
	cfg := config(broker, topic)
	cfg.Ours = isNumber
	s := newSource(topic, 1, 10)
	s.publishAll(t, cfg)
	flood(t, broker.Addr(), topic, million, "hello")
	tail, foreign, err := newClient(t, cfg).Tail(t.Context(), topic, 0, -1, isNumber, 3)
	if err != nil || fmt.Sprint(shown(tail)) != "[7@8 8@9 9@10]" || foreign != million {
		t.Errorf("%s below %d foreign ones, %v", shown(tail), foreign, err)
	}
}
