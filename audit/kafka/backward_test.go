package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"lapse/audit/kafka"
	"lapse/internal/kafkatest"
	"lapse/schemas"
)

// isNumber is who is ours in these tests.
func isNumber(rec *schemas.Record) bool {
	_, err := strconv.Atoi(string(rec.Value))
	return err == nil && len(rec.Headers) > 0
}

func TestEverythingIsHandedOutBackwardsOnce(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	for name, c := range map[string]struct{ records, size int }{
		"none":             {0, 1},
		"one":              {1, 1},
		"many small":       {30_000, 1},
		"more than fits":   {60, 400_000},
		"of a few batches": {500, 2000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := kafkatest.Topic(t, 1)
			flood(t, broker.Addr(), topic, c.records, strings.Repeat("x", c.size))
			client := newClient(t, config(broker, topic))
			next := int64(c.records)
			err := client.Backward(t.Context(), topic, 0, -1, func(rec *schemas.Record, offset int64) (bool, error) {
				if next--; offset != next || len(rec.Value) != c.size {
					return false, fmt.Errorf("%d bytes at %d, want offset %d", len(rec.Value), offset, next)
				}
				return true, nil
			})
			if err != nil || next != 0 {
				t.Errorf("down to %d, %v", next, err)
			}
		})
	}
}

func TestGoingBackwardsEndsWhereTheCallerWants(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 1)
	flood(t, broker.Addr(), topic, 100, "x")
	client := newClient(t, config(broker, topic))
	var seen []int64
	each := func(_ *schemas.Record, offset int64) (bool, error) {
		seen = append(seen, offset)
		return offset > 47, nil
	}
	if err := client.Backward(t.Context(), topic, 0, 50, each); err != nil || fmt.Sprint(seen) != "[49 48 47]" {
		t.Errorf("%v, %v", seen, err)
	}
	broken := errors.New("broken")
	calls := 0
	err := client.Backward(t.Context(), topic, 0, -1, func(*schemas.Record, int64) (bool, error) {
		calls++
		return true, broken
	})
	if !errors.Is(err, broken) || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
}

func TestWhatIsThereIsFoundWithoutFencingAnybody(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 1)
	cfg := config(broker, topic)
	s := newSource(topic, 1, 10)
	p := open(t, cfg)
	if err := s.publish(t.Context(), p, nil); err != nil {
		t.Fatal(err)
	}
	flood(t, broker.Addr(), topic, 3, "hello")
	client := newClient(t, cfg)
	for _, c := range []struct {
		end     int64
		want    string
		foreign int
	}{
		{-1, "[9@10]", 3},
		{12, "[9@10]", 1},
		{5, "[3@4]", 0},
		{1, "[]", 0}, // the fence
		{0, "[]", 0},
	} {
		tail, foreign, err := client.Tail(t.Context(), topic, 0, c.end, isNumber, 1)
		if err != nil || fmt.Sprint(shown(tail)) != c.want || foreign != c.foreign {
			t.Errorf("below %d: %s, %d foreign, %v; want %s, %d", c.end, shown(tail), foreign, err, c.want, c.foreign)
		}
	}
	if end, err := client.End(t.Context(), topic, 0); end != 14 || err != nil {
		t.Errorf("the end is %d, %v", end, err)
	}
	waitAcked(t, p, mustAppend(t, p, s.record(0))) // nobody was fenced
}

func TestATopicThatIsNotThereIsToldApart(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	cfg := config(broker, kafkatest.Topic(t, 1))
	cfg.SetTiming(kafka.Timing{Missing: 100 * time.Millisecond})
	client := newClient(t, cfg)
	var missing *kafka.MissingTopicError
	if _, err := client.End(t.Context(), "nobody-made-it", 0); !errors.As(err, &missing) {
		t.Error(err)
	}
	if _, _, err := client.Tail(t.Context(), "nobody-made-it", 0, -1, nil, 1); !errors.As(err, &missing) ||
		missing.Topic != "nobody-made-it" {
		t.Error(err)
	}
	for _, partition := range []int32{1, -1} {
		_, err := client.End(t.Context(), cfg.Topics[0].Name, partition)
		if err == nil || errors.As(err, &missing) || !strings.Contains(err.Error(), "the topic has 1 partitions") {
			t.Errorf("partition %d, which is not there: %v", partition, err)
		}
	}
}

// flood writes without any of our headers, as a console producer does.
func flood(t *testing.T, addr, topic string, n int, value string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.DefaultProduceTopic(topic), kgo.MaxBufferedRecords(50_000))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var failed error
	for range n {
		client.Produce(t.Context(), kgo.StringRecord(value), func(_ *kgo.Record, err error) {
			if err != nil {
				failed = err
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := errors.Join(client.Flush(ctx), failed); err != nil {
		t.Fatal(err)
	}
}
