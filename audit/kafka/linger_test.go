package kafka_test

import (
	"testing"
	"time"

	"lapse/audit/kafka"
	"lapse/internal/kafkatest"
)

func TestABatchLingersWhileTheLastOneWasSentAMomentAgo(t *testing.T) {
	t.Parallel()
	const linger, records = 30 * time.Millisecond, 10
	topic := kafkatest.Topic(t, 1)
	cfg := config(kafkatest.Broker(t), topic)
	cfg.SetTiming(kafka.Timing{Linger: linger})
	p := open(t, cfg)
	s := newSource(topic, 1, records)
	begun := time.Now()
	for n := range records {
		waitAcked(t, p, mustAppend(t, p, s.record(n)))
	}
	if took := time.Since(begun); took < (records-1)*linger {
		t.Errorf("%d records, one after the other, took %s: a batch was sent less than %s after the one before", records, took, linger)
	}
}

func TestNeitherTheFirstRecordNorAFullBatchLingers(t *testing.T) {
	t.Parallel()
	topic := kafkatest.Topic(t, 1)
	cfg := config(kafkatest.Broker(t), topic)
	cfg.MaxBatchBytes = 2000
	cfg.SetTiming(kafka.Timing{Linger: time.Hour})
	p := open(t, cfg)
	s := newSource(topic, 1, 200)
	waitAcked(t, p, mustAppend(t, p, s.record(0)))
	last := mustAppend(t, p, s.record(1))
	waitFor(t, "the second lingers", func() bool { return p.Lingers(topic) })
	for n := 2; n < s.total; n++ {
		last = mustAppend(t, p, s.record(n))
	}
	waitAcked(t, p, last-100) // of thirty bytes each, so that the last batch has fewer
	if p.Acked() == last {
		t.Error("the last batch did not wait for company")
	}
}

func TestARecordWaitsForTheOneThatFollows(t *testing.T) {
	t.Parallel()
	topic := kafkatest.Topic(t, 1)
	cfg := config(kafkatest.Broker(t), topic)
	cfg.SetTiming(kafka.Timing{Linger: time.Hour})
	p := open(t, cfg)
	s := newSource(topic, 1, 3)
	for n := range 2 {
		rec := s.record(n)
		rec.Follows = true
		mustAppend(t, p, rec)
	}
	waitFor(t, "the first two wait", func() bool { return p.Lingers(topic) })
	if p.Acked() != 0 {
		t.Error("a record did not wait for the one that follows")
	}
	waitAcked(t, p, mustAppend(t, p, s.record(2))) // all in one batch: a second one would wait for an hour
}

func TestARecordDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	topic := kafkatest.Topic(t, 1)
	cfg := config(kafkatest.Broker(t), topic)
	cfg.SetTiming(kafka.Timing{Linger: 30 * time.Millisecond})
	p := open(t, cfg)
	rec := newSource(topic, 1, 1).record(0)
	rec.Follows = true // and none does
	waitAcked(t, p, mustAppend(t, p, rec))
}
