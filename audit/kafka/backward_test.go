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
)

// isNumber is who is ours in these tests.
func isNumber(rec *kafka.Record) bool {
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
			err := client.Backward(t.Context(), topic, 0, -1, func(rec *kafka.Record, offset int64) (bool, error) {
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
	each := func(_ *kafka.Record, offset int64) (bool, error) {
		seen = append(seen, offset)
		return offset > 47, nil
	}
	if err := client.Backward(t.Context(), topic, 0, 50, each); err != nil || fmt.Sprint(seen) != "[49 48 47]" {
		t.Errorf("%v, %v", seen, err)
	}
	broken := errors.New("broken")
	err := client.Backward(t.Context(), topic, 0, -1, func(*kafka.Record, int64) (bool, error) { return true, broken })
	if !errors.Is(err, broken) {
		t.Error(err)
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
		end   int64
		value string
		tail  kafka.Tail
	}{
		{-1, "9", kafka.Tail{Offset: 10, Found: true, Foreign: 3}},
		{12, "9", kafka.Tail{Offset: 10, Found: true, Foreign: 1}},
		{5, "3", kafka.Tail{Offset: 4, Found: true}},
		{1, "", kafka.Tail{Offset: -1}}, // the fence
		{0, "", kafka.Tail{Offset: -1}},
	} {
		tail, err := client.Tail(t.Context(), topic, 0, c.end, isNumber)
		if err != nil || string(tail.Record.Value) != c.value || tail.Offset != c.tail.Offset ||
			tail.Found != c.tail.Found || tail.Foreign != c.tail.Foreign {
			t.Errorf("below %d: %+v, %v; want %q, %+v", c.end, tail, err, c.value, c.tail)
		}
	}
	if end, err := client.End(t.Context(), topic, 0); end != 14 || err != nil {
		t.Errorf("the end is %d, %v", end, err)
	}
	mark, _ := p.Append(s.record(0))
	waitAcked(t, p, mark) // nobody was fenced
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
	if _, err := client.Tail(t.Context(), "nobody-made-it", 0, -1, nil); !errors.As(err, &missing) ||
		missing.Topic != "nobody-made-it" {
		t.Error(err)
	}
	if _, err := client.End(t.Context(), cfg.Topics[0].Name, 1); err == nil || errors.As(err, &missing) {
		t.Errorf("a partition that is not there: %v", err)
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
