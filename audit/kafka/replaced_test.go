package kafka_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"lapse/audit/kafka"
	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
)

// replace deletes a topic and makes it again, while somebody publishes into it.
func replace(t *testing.T, broker *kafkaserver.Server, topic string, partitions int) {
	t.Helper()
	deleteTopic(t, broker.Addr(), topic)
	if err := broker.CreateTopic(t.Context(), topic, partitions, nil); err != nil {
		t.Fatal(err)
	}
}

func TestATopicThatIsMadeAgainWhileItIsPublishedToEndsThePublisher(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	for name, c := range map[string]struct {
		grown int           // foreign records in the new topic before the next of ours
		ends  time.Duration // how often the ends are looked at
		send  bool
	}{
		"the next record comes to the start": {0, time.Hour, true},
		"the new one is as long":             {201, 20 * time.Millisecond, true},
		"the new one is longer":              {500, time.Hour, true},
		"nothing is published":               {0, 20 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := kafkatest.Topic(t, 2)
			cfg := config(broker, topic)
			cfg.Topics[0].Partitions = 2
			cfg.SetTiming(kafka.Timing{Ends: c.ends})
			p := open(t, cfg)
			s := newSource(topic, 1, 200) // partition 0: the fence at 0, the records at 1 to 200
			if err := s.publish(t.Context(), p, nil); err != nil {
				t.Fatal(err)
			}
			replace(t, broker, topic, 2)
			if c.grown > 0 {
				floodPartition(t, broker.Addr(), topic, 0, c.grown, "hello")
			}
			before := p.Acked()
			if c.send {
				p.Append(s.record(0))
			}
			err := waitErr(t, p)
			if !errors.Is(err, kafka.ErrTopicReplaced) || !kafka.Terminal(err) {
				t.Fatalf("%v, want ErrTopicReplaced", err)
			}
			if c.ends == time.Hour && p.Acked() != before {
				t.Errorf("acknowledged up to %d, want %d", p.Acked(), before)
			}
			closePublisher(t, p)

			// The next one finds no tail where there was one.
			cfg.Ours = isNumber
			p = open(t, cfg)
			if rec, offset, ok := p.Last(topic, 0); ok && (!c.send || offset < int64(c.grown)) {
				t.Errorf("%q at %d is a tail", rec.Value, offset)
			}
		})
	}
}

func TestATopicThatIsDeletedEndsThePublisherAlsoWhenNothingIsPublished(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 2)
	cfg := config(broker, topic)
	cfg.Topics[0].Partitions, cfg.Topics[0].Create = 2, true
	cfg.SetTiming(kafka.Timing{Ends: 20 * time.Millisecond, Missing: 100 * time.Millisecond})
	s := newSource(topic, 2, 20)
	p := open(t, cfg)
	if err := s.publish(t.Context(), p, nil); err != nil {
		t.Fatal(err)
	}
	deleteTopic(t, broker.Addr(), topic)
	var missing *kafka.MissingTopicError
	if err := waitErr(t, p); !errors.Is(err, kafka.ErrTopicReplaced) || !errors.As(err, &missing) {
		t.Errorf("%v, want ErrTopicReplaced", err)
	}
	p = open(t, cfg) // makes it again
	if _, _, ok := p.Last(topic, 0); ok || p.Partitions(topic) != 2 {
		t.Error("a topic just made has a tail")
	}
}

func TestATopicThatIsMadeAgainWithFewerPartitionsEndsThePublisher(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 3)
	cfg := config(broker, topic)
	cfg.SetTiming(kafka.Timing{Ends: time.Second})
	p := open(t, cfg)
	replace(t, broker, topic, 1)
	if err := waitErr(t, p); !errors.Is(err, kafka.ErrTopicReplaced) || !strings.Contains(err.Error(), "deleted the topic") {
		t.Errorf("%v, want ErrTopicReplaced", err)
	}
}

// Somebody else's records leave gaps between ours, and so do transactions. Neither is a topic that was replaced.
func TestForeignRecordsInBetweenDoNotEndThePublisher(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 1)
	cfg := config(broker, topic)
	cfg.SetTiming(kafka.Timing{Ends: 20 * time.Millisecond, Renewal: 100 * time.Millisecond})
	p := open(t, cfg)
	s := newSource(topic, 1, 1)
	for range 20 {
		flood(t, broker.Addr(), topic, 3, "hello")
		mark, ok := p.Append(s.record(0))
		if !ok {
			t.Fatal(p.Err())
		}
		waitAcked(t, p, mark)
	}
	deleteRecords(t, broker.Addr(), topic, -1) // retention
	flood(t, broker.Addr(), topic, 3, "hello")
	mark, _ := p.Append(s.record(0))
	waitAcked(t, p, mark)
}
