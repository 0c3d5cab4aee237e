package kafka_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"lapse/audit/kafka"
	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
)

// A publisher that is abandoned in mid-flight stands for a process that was killed: nothing of it ends in order, and what
// it has under way arrives or not.
func TestPublishersThatTakeOverFromOneAnotherInMidFlightLeaveEachRecordOnce(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 3)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	s := newSource(topic, 3, 8000)
	fates := []fate{pass, pass, pass, lose, loseAnswer, cut}
	for range 12 {
		choices := rand.New(rand.NewPCG(seed, random.Uint64()))
		cfg := config(broker, topic)
		cfg.Dial = newNetwork(func(int) fate { return fates[choices.IntN(len(fates))] }).Dial
		cfg.MaxBatchBytes, cfg.MaxBuffered = 1500, 6000
		p := open(t, cfg) // closed at the end of the test, long after its successors have begun
		stop := make(chan struct{})
		timer := time.AfterFunc(time.Duration(random.Int64N(int64(150*time.Millisecond))), func() { close(stop) })
		if err := s.publish(t.Context(), p, stop); err != nil && !errors.Is(err, errStopped) {
			t.Fatal(err)
		}
		timer.Stop()
	}
	s.publishAll(t, config(broker, topic))
	s.verify(t, broker)
}

//lapse:long
func TestABrokerThatIsKilledAndStartedAgainHasEachRecordOnce(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Solo(t, kafkaserver.Options{})
	topic := kafkatest.TopicOn(t, broker, 3)
	s := newSource(topic, 3, 60_000)
	cfg := config(broker, topic)
	cfg.MaxBatchBytes, cfg.MaxBuffered = 4000, 40_000
	cfg.SetTiming(kafka.Timing{EndsEvery: 5 * time.Millisecond}) // a broker that comes back is not another topic
	p := open(t, cfg)
	done := make(chan error, 1)
	go func() { done <- s.publish(t.Context(), p, nil) }()
	for range 2 {
		acked := p.Acked()
		waitAcked(t, p, min(acked+3000, uint64(s.total)))
		if err := broker.Kill(); err != nil {
			t.Fatal(err)
		}
		acked = p.Acked()
		if err := broker.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		back := time.Now()
		waitAcked(t, p, min(acked+1, uint64(s.total)))
		t.Logf("went on %s after the broker was back", time.Since(back).Round(time.Millisecond))
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	s.verify(t, broker)
}

func TestALateResendOfAFormerPublisherIsRefused(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 1)
	cfg := config(broker, topic)
	net := newNetwork(nil)
	cfg.Dial = net.Dial
	former := open(t, cfg)
	net.From(always(hold))
	s := newSource(topic, 1, 1)
	mustAppend(t, former, s.record(0))
	<-net.Held()

	s.publishAll(t, config(broker, topic))
	net.Let()
	if err := waitErr(t, former); !errors.Is(err, kafka.ErrFenced) {
		t.Errorf("the former publisher ends with %v, want ErrFenced", err)
	}
	if former.Acked() != 0 {
		t.Error("the former publisher says its record is acknowledged")
	}
	s.verify(t, broker)
}

// Between append and answer lies the one case in which neither side knows what the other does.
func TestARecordWhoseAnswerDiedWithThePublisherIsInTheTail(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 1)
	cfg := config(broker, topic)
	net := newNetwork(nil)
	cfg.Dial = net.Dial
	former := open(t, cfg)
	answers := make(chan struct{}, 1)
	net.From(func(n int) fate {
		if n == 1 {
			return loseAnswer
		}
		select {
		case answers <- struct{}{}:
		default:
		}
		return lose
	})
	s := newSource(topic, 1, 1)
	mustAppend(t, former, s.record(0))
	<-answers // the second attempt: the first was carried out

	p := open(t, config(broker, topic))
	rec, offset, ok := last(p, topic, 0)
	if !ok || string(rec.Value) != "0" || offset != 1 {
		t.Errorf("the tail is %q at %d (%t), want the record at 1, after the first fence", rec.Value, offset, ok)
	}
	if former.Acked() != 0 || former.Stalled() == 0 {
		t.Error("the former publisher has an answer")
	}
}

func TestRecordsOlderThanTheBrokersMemoryOfProducersAreStillThereOnce(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Solo(t, kafkaserver.Options{Settings: map[string]string{
		"producer.id.expiration.ms":                "3600000",
		"producer.id.expiration.check.interval.ms": "100",
	}})
	topic := kafkatest.TopicOn(t, broker, 1)
	forgets := newProducerWatch(t, broker, topic)
	cfg := config(broker, topic)
	net := newNetwork(nil)
	cfg.Dial = net.Dial
	cfg.MaxBatchBytes = 1000
	cfg.SetTiming(kafka.Timing{OldRecords: 30 * time.Minute})
	p := open(t, cfg)
	net.From(func(n int) fate {
		if n%2 == 1 {
			return loseAnswer // of every batch
		}
		forgets.waitForALook()
		return pass
	})
	s := newSource(topic, 1, 100)
	s.age = 48 * time.Hour
	if err := s.publish(t.Context(), p, nil); err != nil {
		t.Fatal(err)
	}
	forgets.stop()
	s.verify(t, broker)
}

func TestRenewingTheSessionDoesNotDisturbTheRecords(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 3)
	cfg := config(broker, topic)
	cfg.SetTiming(kafka.Timing{RenewEvery: 20 * time.Millisecond})
	cfg.MaxBatchBytes, cfg.MaxBuffered = 1500, 6000
	s := newSource(topic, 3, 20_000)
	p := open(t, cfg)
	first := p.Epoch()
	if err := s.publish(t.Context(), p, nil); err != nil {
		t.Fatal(err)
	}
	if p.Epoch() == first {
		t.Error("the session was never renewed")
	}
	s.verify(t, broker)

	// The successor takes over from the renewed session, and the former learns of it at its next renewal.
	open(t, config(broker, topic))
	if err := waitErr(t, p); !errors.Is(err, kafka.ErrFenced) {
		t.Errorf("%v, want ErrFenced", err)
	}
}

func TestABatchInDoubtForTooLongIsNotSentAgain(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 1)
	cfg := config(broker, topic)
	net := newNetwork(nil)
	cfg.Dial = net.Dial
	cfg.SetTiming(kafka.Timing{MaxUnanswered: 3 * time.Second})
	p := open(t, cfg)
	net.From(always(loseAnswer))
	s := newSource(topic, 1, 1)
	mustAppend(t, p, s.record(0))
	if err := waitErr(t, p); !errors.Is(err, kafka.ErrRestart) || !strings.Contains(err.Error(), "without answer") {
		t.Errorf("%v, want ErrRestart", err)
	}
	if n, end := net.Requests(), endOf(t, cfg); n < 2 || end != 2 || p.Acked() != 0 {
		t.Errorf("sent %d times, the end is %d: want the fence and one copy; acknowledged %d", n, end, p.Acked())
	}
	s.publishAll(t, config(broker, topic))
	s.verify(t, broker)
}

func TestWithoutARenewedSessionNothingIsSent(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 1)
	cfg := config(broker, topic)
	net := newNetwork(nil)
	cfg.Dial = net.Dial
	const lasts = 5 * time.Second // enough to open
	cfg.SetTiming(kafka.Timing{MaxUnrenewed: lasts})
	p := open(t, cfg)
	net.From(nil)
	pause(lasts)
	s := newSource(topic, 1, 10)
	for n := range s.total {
		if _, ok := p.Append(s.record(n)); !ok && p.Err() == nil {
			t.Fatal("the buffer is full")
		}
	}
	if err := waitErr(t, p); !errors.Is(err, kafka.ErrRestart) || !strings.Contains(err.Error(), "last renewed") {
		t.Errorf("%v, want ErrRestart", err)
	}
	closePublisher(t, p)
	if n, end := net.Requests(), endOf(t, cfg); n != 0 || end != 1 || p.Acked() != 0 {
		t.Errorf("%d requests, the end is %d, acknowledged %d: want the fence and nothing else", n, end, p.Acked())
	}
	s.publishAll(t, config(broker, topic))
	s.verify(t, broker)
}
