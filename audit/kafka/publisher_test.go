package kafka_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"lapse/audit/kafka"
	"lapse/internal/kafkatest"
	"lapse/schemas"
)

func TestEveryRecordIsInItsTopicOnceAndInOrder(t *testing.T) {
	t.Parallel()
	topic := kafkatest.Topic(t, 6)
	s := newSource(topic, 6, 20_000)
	s.publishAll(t, config(kafkatest.Broker(t), topic))
	s.verify(t, kafkatest.Broker(t))
}

func TestWhateverTheNetworkLosesEveryRecordIsThereOnce(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	for name, fates := range map[string][]fate{
		"requests":                {pass, lose},
		"halves":                  {pass, cut},
		"answers":                 {pass, loseAnswer},
		"halves of answers":       {pass, cutAnswer},
		"answers in a row":        {pass, loseAnswer, loseAnswer, loseAnswer},
		"nothing, but doubles it": {pass, twice},
		"all of it":               {pass, lose, cut, loseAnswer, cutAnswer, twice},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := kafkatest.Topic(t, 3)
			cfg := config(broker, topic)
			cfg.Dial = newNetwork(func(n int) fate { return fates[n%len(fates)] }).Dial
			cfg.MaxBatchBytes, cfg.MaxBuffered = 2000, 10_000 // many batches
			cfg.SetTiming(kafka.Timing{Backoff: 20 * time.Millisecond})
			s := newSource(topic, 3, 3000)
			if opened := s.publishAll(t, cfg); opened != 1 {
				t.Errorf("opened %d times: what the network loses is sent again, not more", opened)
			}
			s.verify(t, broker)
		})
	}
}

// The broker has carried out what the publisher has given up: its answer comes when the same batch is under way again.
func TestABatchThatSucceededAfterItsTimeIsThereOnce(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 1)
	cfg := config(broker, topic)
	net := newNetwork(nil)
	cfg.Dial = net.Dial
	cfg.MaxBatchBytes, cfg.MaxBuffered = 2000, 4000
	cfg.SetTiming(kafka.Timing{Request: 300 * time.Millisecond, Backoff: 20 * time.Millisecond})
	p := open(t, cfg)
	late := 0
	net.From(func(n int) fate {
		if n%4 == 1 && late < 3 {
			late++
			return lateAnswer
		}
		return pass
	})
	s := newSource(topic, 1, 1000)
	if err := s.publish(t.Context(), p, nil); err != nil {
		t.Fatal(err)
	}
	if requests := net.Requests(); late != 3 {
		t.Errorf("%d answers of %d were late, want 3", late, requests)
	}
	s.verify(t, broker)
}

func TestAFullBufferTakesNothingUntilThereIsProgress(t *testing.T) {
	t.Parallel()
	topic := kafkatest.Topic(t, 1)
	cfg := config(kafkatest.Broker(t), topic)
	net := newNetwork(nil)
	cfg.Dial = net.Dial
	cfg.MaxBuffered = 10_000
	p := open(t, cfg)
	net.From(always(hold))
	s := newSource(topic, 1, 1)
	taken := uint64(0)
	for {
		number, ok := p.Append(s.record(0))
		if !ok {
			break
		}
		taken = number
	}
	if taken < 100 || taken > 400 || p.Err() != nil {
		t.Fatalf("%d records of about 50 bytes taken, error %v", taken, p.Err())
	}
	<-net.Held()
	if p.Stalled() == 0 {
		t.Error("not stalled while a batch is held")
	}
	net.Let()
	waitAcked(t, p, taken)
	if number, ok := p.Append(s.record(0)); !ok || number != taken+1 {
		t.Errorf("number %d (%t) after the buffer has drained, want %d", number, ok, taken+1)
	}
	waitAcked(t, p, taken+1)
	if p.Stalled() != 0 {
		t.Error("stalled with nothing under way")
	}
}

func TestARecordIsNotAcknowledgedBeforeThoseAppendedBeforeIt(t *testing.T) {
	t.Parallel()
	topic := kafkatest.Topic(t, 2)
	cfg := config(kafkatest.Broker(t), topic)
	net := newNetwork(nil)
	cfg.Dial = net.Dial
	p := open(t, cfg)
	net.From(func(n int) fate {
		if n == 1 {
			return hold
		}
		return pass
	})
	to := func(partition int32) uint64 {
		return mustAppend(t, p, schemas.Record{Topic: topic, Partition: partition, Value: []byte("v"), Time: time.Now()})
	}
	to(0)
	<-net.Held()
	for range 3 {
		to(1)
		<-p.Progress() // the one to partition 1 is acknowledged
		if p.Acked() != 0 {
			t.Fatalf("acknowledged up to %d while the first record is held", p.Acked())
		}
	}
	last := to(0) // after the one that is held
	net.Let()
	waitAcked(t, p, last)
}

func TestARecordThatIsTooLargeStopsThePublisher(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Name()
	if err := broker.CreateTopic(t.Context(), topic, 1, map[string]string{"max.message.bytes": "5000"}); err != nil {
		t.Fatal(err)
	}
	p := open(t, config(broker, topic))
	s := newSource(topic, 1, 1)
	rec := s.record(0)
	for range 100 { // more than one batch of what the topic takes
		rec.Value = []byte(strings.Repeat("x", 3000))
		mustAppend(t, p, rec)
	}
	waitAcked(t, p, 100)
	rec.Value = []byte(strings.Repeat("x", 5000))
	if number, ok := p.Append(rec); ok {
		t.Errorf("taken as %d", number)
	}
	if err := p.Err(); !errors.Is(err, kafka.ErrTooLarge) || strings.Contains(err.Error(), "xxx") {
		t.Errorf("%v, want ErrTooLarge without the value", err)
	}
	if _, ok := p.Append(s.record(0)); ok {
		t.Error("takes a record after one that was not published")
	}
}

func TestAClosedPublisherTakesNothing(t *testing.T) {
	t.Parallel()
	topic := kafkatest.Topic(t, 1)
	p := open(t, config(kafkatest.Broker(t), topic))
	closePublisher(t, p)
	if _, ok := p.Append(newSource(topic, 1, 1).record(0)); ok || !errors.Is(p.Err(), kafka.ErrClosed) {
		t.Errorf("taken: %t, error %v", ok, p.Err())
	}
}

func TestClosingDoesNotWaitForTheBrokers(t *testing.T) {
	t.Parallel()
	topic := kafkatest.Topic(t, 2)
	cfg := config(kafkatest.Broker(t), topic)
	net := newNetwork(nil)
	cfg.Dial = net.Dial
	p := open(t, cfg)
	net.From(always(hold)) // forever
	s := newSource(topic, 2, 10)
	for n := range s.total {
		mustAppend(t, p, s.record(n))
	}
	<-net.Held()
	begun := time.Now()
	closePublisher(t, p) // goleak sees whether anything is left
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("closing took %s", took)
	}
}

func TestWhatCannotBeARecordIsRefused(t *testing.T) {
	t.Parallel()
	topic := kafkatest.Topic(t, 2)
	const nowhere = "no such partition was opened"
	for name, c := range map[string]struct {
		rec  schemas.Record
		says string
	}{
		"another topic":        {schemas.Record{Topic: "other", Time: time.Now()}, nowhere},
		"a partition too many": {schemas.Record{Topic: topic, Partition: 2, Time: time.Now()}, nowhere},
		"a negative partition": {schemas.Record{Topic: topic, Partition: -1, Time: time.Now()}, nowhere},
		"no time":              {schemas.Record{Topic: topic}, "without time"},
		"a time before 1970":   {schemas.Record{Topic: topic, Time: time.UnixMilli(-1)}, "of before 1970"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := config(kafkatest.Broker(t), topic)
			cfg.TransactionalID = name // or they would fence one another
			p := open(t, cfg)
			if _, ok := p.Append(c.rec); ok || p.Err() == nil || !strings.Contains(p.Err().Error(), c.says) {
				t.Errorf("taken: %t, error %v, want %q", ok, p.Err(), c.says)
			}
		})
	}
}

func TestOpenGivesUpWithItsContextAndSaysWhy(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second) // time for a first attempt
	defer cancel()
	_, err := kafka.Open(ctx, kafka.Config{
		Brokers: []string{"127.0.0.1:1"}, TransactionalID: "id", Topics: []kafka.Topic{{Name: "topic"}},
	})
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("%v", err)
	}
}

// A server's clock was wrong for a moment: its commits are two hours ahead of the broker's clock, or a year.
func TestARecordOfATimeToComeIsPublishedAsOfNow(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 1)
	p := open(t, config(broker, topic))
	began := time.Now().Truncate(time.Millisecond)
	times := []time.Time{began, began.Add(30 * time.Second), began.Add(2 * time.Hour), began.AddDate(1, 0, 0), began.Add(-time.Hour)}
	for n, at := range times {
		waitAcked(t, p, mustAppend(t, p, schemas.Record{Topic: topic, Value: []byte{'0' + byte(n)}, Time: at}))
	}
	ended := time.Now()
	n := 0
	for _, rec := range kafkatest.ReadAll(t, topic) {
		if rec.Header(kafka.HeaderOp) == schemas.OpFence {
			continue
		}
		want := times[rec.Value[0]-'0']
		if ahead := want.Sub(began) > time.Minute; !ahead && !rec.Time.Equal(want) || ahead && (rec.Time.Before(began) || rec.Time.After(ended)) {
			t.Errorf("record %s of %s has the time %s", rec.Value, want, rec.Time)
		}
		n++
	}
	if n != len(times) {
		t.Errorf("%d records, want %d", n, len(times))
	}
}
