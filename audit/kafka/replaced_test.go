package kafka_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"lapse/audit/kafka"
	"lapse/internal/fixture"
	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
)

// replace deletes a topic and makes it again, while somebody publishes into it.
func replace(t *testing.T, broker *kafkaserver.Server, topic string, partitions int) {
	t.Helper()
	former := topicID(t, broker.Addr(), topic)
	deleteTopic(t, broker.Addr(), topic)
	if err := broker.CreateTopic(t.Context(), topic, partitions, nil); err != nil {
		t.Fatal(err)
	}
	// A broker names the former topic for a moment, and a producer that believes it is refused.
	fixture.Eventually(t, "the broker knows the topic that was made again", func() bool {
		id := topicID(t, broker.Addr(), topic)
		return id != former && id != [16]byte{}
	})
}

func TestATopicThatIsMadeAgainWhileItIsPublishedToEndsThePublisher(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	for name, grown := range map[string]int{ // by how many foreign records before the next one of ours
		"the next record comes to the start": 0,
		"the new one is longer":              500,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := kafkatest.Topic(t, 1)
			cfg := config(broker, topic)
			cfg.Ours = isNumber
			p := open(t, cfg)
			s := newSource(topic, 1, 200) // after the fence, at 1 to 200
			if err := s.publish(t.Context(), p, nil); err != nil {
				t.Fatal(err)
			}
			replace(t, broker, topic, 1)
			flood(t, broker.Addr(), topic, grown, "hello")
			before := p.Acked()
			rec := s.record(0)
			mustAppend(t, p, rec)
			if err := waitErr(t, p); !errors.Is(err, kafka.ErrTopicReplaced) || !kafka.Terminal(err) {
				t.Fatalf("%v, want ErrTopicReplaced", err)
			}
			if p.Acked() != before {
				t.Errorf("acknowledged up to %d, want %d", p.Acked(), before)
			}
			closePublisher(t, p)

			p = open(t, cfg)
			newest, offset, ok := last(p, topic, 0)
			if !ok || offset != int64(grown) || string(newest.Value) != string(rec.Value) {
				t.Errorf("the tail is %q at %d (%t), want the one record of ours at %d", newest.Value, offset, ok, grown)
			}
			if fence, ok := p.Fence(topic, 0); !ok || fence != int64(grown)+1 {
				t.Errorf("the fence is at %d (%t)", fence, ok)
			}
		})
	}
}

func TestATopicThatIsMadeAgainIsNoticedWhereNothingIsPublished(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	for name, grown := range map[string]int{"shorter": 0, "as long": 201, "longer": 500} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := kafkatest.Topic(t, 1)
			p := open(t, config(broker, topic))
			s := newSource(topic, 1, 200)
			if err := s.publish(t.Context(), p, nil); err != nil {
				t.Fatal(err)
			}
			if err := p.CheckEnds(t.Context()); err != nil {
				t.Errorf("before: %v", err)
			}
			replace(t, broker, topic, 1)
			flood(t, broker.Addr(), topic, grown, "hello")
			if err := p.CheckEnds(t.Context()); !errors.Is(err, kafka.ErrTopicReplaced) || !kafka.Terminal(err) {
				t.Errorf("%v, want ErrTopicReplaced", err)
			}
		})
	}
}

// A consumer of a broker that makes topics by itself may have it back at once; nothing of ours does.
func TestATopicThatIsDeletedEndsThePublisherAlsoWhenNothingIsPublished(t *testing.T) {
	t.Parallel()
	for name, broker := range map[string]*kafkaserver.Server{
		"a broker that makes none": kafkatest.Broker(t),
		"a broker that makes topics by itself": kafkatest.Solo(t, kafkaserver.Options{
			Settings: map[string]string{"auto.create.topics.enable": "true"},
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := kafkatest.TopicOn(t, broker, 2)
			cfg := config(broker, topic)
			cfg.Topics[0].Partitions, cfg.Topics[0].Create = 2, true
			cfg.SetTiming(kafka.Timing{EndsEvery: 20 * time.Millisecond, Missing: 100 * time.Millisecond})
			cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
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
			_, _, tail := last(p, topic, 0)
			_, second := p.Fence(topic, 1)
			_, third := p.Fence(topic, 2)
			if tail || !second || third {
				t.Errorf("a topic just made with two partitions: a tail %t, a second %t, a third %t", tail, second, third)
			}
		})
	}
}

func TestATopicThatIsMadeAgainWithFewerPartitionsEndsThePublisher(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 3)
	cfg := config(broker, topic)
	cfg.SetTiming(kafka.Timing{EndsEvery: time.Second})
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
	cfg.SetTiming(kafka.Timing{EndsEvery: 20 * time.Millisecond, RenewEvery: 100 * time.Millisecond})
	p := open(t, cfg)
	s := newSource(topic, 1, 1)
	for range 20 {
		flood(t, broker.Addr(), topic, 3, "hello")
		waitAcked(t, p, mustAppend(t, p, s.record(0)))
	}
	deleteRecords(t, broker.Addr(), topic, -1) // retention
	flood(t, broker.Addr(), topic, 3, "hello")
	waitAcked(t, p, mustAppend(t, p, s.record(0)))
}
