package kafka_test

import (
	"errors"
	"fmt"
	"testing"

	"lapse/audit/kafka"
	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
)

// coordinator is the topic in which brokers keep which producer and which epoch a transactional id has.
const coordinator = "__transaction_state"

// forgets kills the broker, has it lose something, and starts it again.
func forgets(t *testing.T, broker *kafkaserver.Server, lose func() error) {
	t.Helper()
	if err := errors.Join(broker.Kill(), lose(), broker.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// A coordinator that has lost its state gives another producer. The former publisher used to go on: a broker accepts any producer.
func TestAFormerPublisherIsFencedThoughTheCoordinatorHasForgottenIt(t *testing.T) {
	t.Parallel()
	broker, topic := kafkatest.Solo(t, kafkaserver.Options{}), kafkatest.Name()
	if err := broker.CreateTopic(t.Context(), topic, 3, nil); err != nil {
		t.Fatal(err)
	}
	cfg := config(broker, topic)
	former := open(t, cfg)
	s := newSource(topic, 3, 60)
	waitAcked(t, former, mustAppend(t, former, s.record(0)))
	forgets(t, broker, func() error { return broker.LosePartition(coordinator, 0) })
	s.publishAll(t, cfg)
	for i := range 3 {
		mustAppend(t, former, s.record(10+i))
	}
	if err := waitErr(t, former); !errors.Is(err, kafka.ErrFenced) {
		t.Errorf("the former publisher ends with %v, want ErrFenced", err)
	}
	s.verify(t, broker)
}

// A coordinator that has lost the end of its state gives an epoch again, or one below it.
//
//lapse:long
func TestNoEpochIsOfTwoPublishers(t *testing.T) {
	t.Parallel()
	for _, lost := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d lost", lost), func(t *testing.T) {
			t.Parallel()
			broker, topic := kafkatest.Solo(t, kafkaserver.Options{}), kafkatest.Name()
			if err := broker.CreateTopic(t.Context(), topic, 1, nil); err != nil {
				t.Fatal(err)
			}
			cfg := config(broker, topic)
			for range 5 {
				closePublisher(t, open(t, cfg))
			}
			former := open(t, cfg)
			s := newSource(topic, 1, 20)
			waitAcked(t, former, mustAppend(t, former, s.record(0)))
			forgets(t, broker, func() error {
				_, err := broker.LoseTail(coordinator, 0, lost)
				return err
			})
			p := open(t, cfg)
			if p.Epoch() <= former.Epoch() {
				t.Errorf("the epoch is %d, and the former publisher has %d", p.Epoch(), former.Epoch())
			}
			if newest, offset, ok := last(p, topic, 0); !ok || string(newest.Value) != "0" {
				t.Errorf("the tail is %q at %d (%t), want the former publisher's record", newest.Value, offset, ok)
			}
			mustAppend(t, former, s.record(1))
			if err := waitErr(t, former); !errors.Is(err, kafka.ErrFenced) {
				t.Errorf("the former publisher ends with %v, want ErrFenced", err)
			}
			s.publishAll(t, cfg)
			s.verify(t, broker)
		})
	}
}
