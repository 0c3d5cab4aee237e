package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"lapse/audit/kafka"
	"lapse/internal/fixture"
	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
	"lapse/schemas"
)

const patience = fixture.Patience

// source is what a slot is to the relay: records in a fixed order, which can be had again from any point.
type source struct {
	topic      string
	partitions int
	total      int
	age        time.Duration // of the records, at the start of the test
	begun      time.Time
	confirmed  []int // by partition: the highest number that a publisher said was acknowledged; -1 for none
}

func newSource(topic string, partitions, total int) *source {
	s := &source{topic: topic, partitions: partitions, total: total, begun: time.Now()}
	for range partitions {
		s.confirmed = append(s.confirmed, -1)
	}
	return s
}

// record is the n-th, from 0: its value is the number, its partition follows from the number.
func (s *source) record(n int) schemas.Record {
	return schemas.Record{
		Topic: s.topic, Partition: s.partition(n),
		Key: []byte(strconv.Itoa(n % 17)), Value: []byte(strconv.Itoa(n)),
		Headers: []schemas.Header{{Key: schemas.HeaderOp, Value: []byte("delete")}},
		Time:    s.begun.Add(-s.age).Add(time.Duration(n) * time.Millisecond),
	}
}

// partition is that of a record's key: one of seventeen.
func (s *source) partition(n int) int32 { return int32(n % 17 % s.partitions) }

// publish sends what is above the tails of p, until all is acknowledged, p ends, or stop is closed. What a publisher has
// said was acknowledged must be in the tails of the next.
func (s *source) publish(ctx context.Context, p *kafka.Publisher, stop <-chan struct{}) error {
	tails := make([]int, s.partitions)
	for i := range tails {
		tails[i] = -1
		if rec, _, ok := last(p, s.topic, int32(i)); ok {
			tails[i], _ = strconv.Atoi(string(rec.Value))
		}
		if tails[i] < s.confirmed[i] {
			return fmt.Errorf("partition %d: the tail is %d, %d was acknowledged", i, tails[i], s.confirmed[i])
		}
	}
	var sent []int // by number, from 1
	defer func() {
		for _, n := range sent[:p.Acked()] {
			s.confirmed[s.partition(n)] = n
		}
	}()
	wait := func() error {
		select {
		case <-p.Progress():
			return p.Err()
		case <-stop:
			return errStopped
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	var highest uint64
	for n := range s.total {
		if n <= tails[s.partition(n)] {
			continue
		}
		for {
			number, ok := p.Append(s.record(n))
			if ok {
				if number != highest+1 {
					return fmt.Errorf("number %d follows %d", number, highest)
				}
				highest = number
				sent = append(sent, n)
				break
			}
			if err := p.Err(); err != nil {
				return err
			}
			if err := wait(); err != nil {
				return err
			}
		}
		select {
		case <-stop:
			return errStopped
		default:
		}
	}
	for p.Acked() < highest {
		if err := wait(); err != nil {
			return err
		}
	}
	return nil
}

var errStopped = errors.New("stopped by the test")

// publishAll opens publishers one after the other, as often as it takes, as the relay does.
func (s *source) publishAll(t *testing.T, cfg kafka.Config) (opened int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		opened++
		p, err := kafka.Open(ctx, cfg)
		if errors.Is(err, kafka.ErrRestart) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		err = s.publish(ctx, p, nil)
		closePublisher(t, p)
		switch {
		case err == nil:
			return opened
		case !errors.Is(err, kafka.ErrRestart):
			t.Fatal(err)
		}
	}
}

// verify reads the topic with another library and wants every record once, in order.
func (s *source) verify(t *testing.T, broker *kafkaserver.Server) {
	t.Helper()
	next := make([]int, s.partitions) // the next number of each partition
	skip := func(p int32) {
		for next[p] < s.total && s.partition(next[p]) != p {
			next[p]++
		}
	}
	for p := range next {
		skip(int32(p))
	}
	found := 0
	for _, rec := range kafkatest.ReadAllOn(t, broker, s.topic) {
		if rec.Header(schemas.HeaderOp) == schemas.OpFence {
			continue
		}
		found++
		n, err := strconv.Atoi(string(rec.Value))
		if err != nil || n != next[rec.Partition] {
			t.Fatalf("partition %d, offset %d: record %s, want %d", rec.Partition, rec.Offset, rec.Value, next[rec.Partition])
		}
		if want := s.record(n); !rec.Time.Equal(want.Time.Truncate(time.Millisecond)) || string(rec.Key) != string(want.Key) {
			t.Fatalf("record %d: %+v, want %+v", n, rec, want)
		}
		next[rec.Partition]++
		skip(rec.Partition)
	}
	if found != s.total {
		t.Fatalf("%d records, want %d", found, s.total)
	}
}

func config(broker *kafkaserver.Server, topic string) kafka.Config {
	return kafka.Config{
		Brokers:         []string{broker.Addr()},
		TransactionalID: topic,
		Topics:          []kafka.Topic{{Name: topic}},
	}
}

func open(t *testing.T, cfg kafka.Config) *kafka.Publisher {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p, err := kafka.Open(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closePublisher(t, p) })
	return p
}

func closePublisher(t *testing.T, p *kafka.Publisher) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
}

// last is the newest record of a tail.
func last(p *kafka.Publisher, topic string, partition int32) (schemas.Record, int64, bool) {
	tail := p.Last(topic, partition)
	if len(tail) == 0 {
		return schemas.Record{}, -1, false
	}
	newest := tail[len(tail)-1]
	return newest.Record, newest.Offset, true
}

// mustAppend appends a record that must be taken, and returns its number.
func mustAppend(t *testing.T, p *kafka.Publisher, rec schemas.Record) uint64 {
	t.Helper()
	number, ok := p.Append(rec)
	if !ok {
		t.Fatalf("the record was not taken: %v", p.Err())
	}
	return number
}

// endOf is the end offset of partition 0 of a topic, as in the broker.
func endOf(t *testing.T, cfg kafka.Config) int64 {
	t.Helper()
	cfg.Dial = nil // no faults on this way
	bounds, err := newClient(t, cfg).Offsets(t.Context(), cfg.Topics[0].Name)
	if err != nil {
		t.Fatal(err)
	}
	return bounds[0].End
}

// waitErr waits for the publisher's end.
func waitErr(t *testing.T, p *kafka.Publisher) error {
	t.Helper()
	deadline := time.After(patience)
	for p.Err() == nil {
		select {
		case <-p.Progress():
		case <-deadline:
			t.Fatal("the publisher goes on")
		}
	}
	return p.Err()
}

// waitAcked waits for an acknowledgement.
func waitAcked(t *testing.T, p *kafka.Publisher, number uint64) {
	t.Helper()
	deadline := time.After(patience)
	for p.Acked() < number {
		select {
		case <-p.Progress():
			if err := p.Err(); err != nil {
				t.Fatal(err)
			}
		case <-deadline:
			t.Fatalf("acknowledged up to %d, want %d", p.Acked(), number)
		}
	}
}
