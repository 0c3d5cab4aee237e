package kafka_test

import (
	"context"
	"errors"
	"io"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"lapse/audit/kafka"
	"lapse/internal/kafkatest"
	"lapse/schemas"
)

func TestAnEmptyPartitionHasNoTail(t *testing.T) {
	t.Parallel()
	topic := kafkatest.Topic(t, 2)
	p := open(t, config(kafkatest.Broker(t), topic))
	for partition := range int32(2) {
		if rec, offset, ok := last(p, topic, partition); ok {
			t.Errorf("partition %d has %+v at %d", partition, rec, offset)
		}
	}
	for _, other := range []struct {
		topic     string
		partition int32
	}{{"other", 0}, {topic, 2}, {topic, -1}} {
		_, _, tail := last(p, other.topic, other.partition)
		_, fence := p.Fence(other.topic, other.partition)
		if end := p.End(other.topic, other.partition); tail || fence || end != (kafka.End{}) {
			t.Errorf("%v, which is not published to, has a tail (%t), a fence (%t), the end %v", other, tail, fence, end)
		}
	}
}

func TestTheTailIsFoundBehindAnyNumberOfFences(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 2)
	cfg := config(broker, topic)
	s := newSource(topic, 2, 50)
	s.publishAll(t, cfg)
	want := make([]schemas.Record, 2)
	for n := range s.total {
		want[s.partition(n)] = s.record(n)
	}
	for starts := range 40 {
		p := open(t, cfg)
		for partition, w := range want {
			rec, _, ok := last(p, topic, int32(partition))
			if !ok || string(rec.Value) != string(w.Value) || string(rec.Key) != string(w.Key) || rec.IsFence() ||
				!rec.Time.Equal(w.Time.Truncate(time.Millisecond)) || rec.Topic != topic || rec.Partition != int32(partition) {
				t.Fatalf("after %d starts: %+v (%t), want %+v", starts, rec, ok, w)
			}
		}
		closePublisher(t, p)
	}
}

func TestFencesAloneAreNoTail(t *testing.T) {
	t.Parallel()
	topic := kafkatest.Topic(t, 1)
	cfg := config(kafkatest.Broker(t), topic)
	cfg.Topics[0].Tail = 3
	for n := range int64(10) {
		p := open(t, cfg)
		if fence, _ := p.Fence(topic, 0); fence != n {
			t.Fatalf("the fence is at %d, want it after the %d before", fence, n)
		}
		if tail := p.Last(topic, 0); len(tail) > 0 {
			t.Fatalf("%s is a tail", shown(tail))
		}
		closePublisher(t, p)
	}
}

func TestTheTailIsFoundWhereRetentionHasDeletedTheStart(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 1)
	cfg := config(broker, topic)
	s := newSource(topic, 1, 50)
	s.publishAll(t, cfg) // offset 0 is the fence, 1 to 50 the records

	deleteRecords(t, broker.Addr(), topic, 40)
	p := open(t, cfg)
	if rec, offset, ok := last(p, topic, 0); !ok || offset != 50 || string(rec.Value) != "49" {
		t.Errorf("%q at %d (%t), want record 49 at 50", rec.Value, offset, ok)
	}
	closePublisher(t, p)

	deleteRecords(t, broker.Addr(), topic, 51) // all but the last fence
	p = open(t, cfg)
	if rec, offset, ok := last(p, topic, 0); ok {
		t.Errorf("%q at %d, want nothing: all records are deleted", rec.Value, offset)
	}
	closePublisher(t, p)

	deleteRecords(t, broker.Addr(), topic, -1) // all
	s = newSource(topic, 1, 50)                // without a tail the caller sends what its own position says
	s.publishAll(t, cfg)
	s.verify(t, broker)
}

func TestTheTailIsFoundBehindWhatCompactionHasRemoved(t *testing.T) {
	t.Parallel()
	cluster := kafkatest.Fake(t, kfake.NumBrokers(1))
	const topic = "compacted"
	cfg := kafka.Config{
		Brokers: cluster.ListenAddrs(), TransactionalID: topic,
		Topics: []kafka.Topic{{Name: topic, Partitions: 1, Create: true, Configs: map[string]string{
			"segment.bytes": "200", "min.cleanable.dirty.ratio": "0",
		}}},
	}
	p := open(t, cfg)
	for n := range 100 { // 10 keys
		waitAcked(t, p, mustAppend(t, p, schemas.Record{ // a batch each
			Topic: topic, Key: []byte(strconv.Itoa(n % 10)), Value: []byte(strconv.Itoa(n)), Time: time.Now(),
		}))
	}
	closePublisher(t, p)
	for range 20 {
		closePublisher(t, open(t, cfg))
	}
	alter(t, cluster.ListenAddrs()[0], topic, "cleanup.policy", "compact") // a publisher refuses that; the next one finds:
	cluster.Compact()
	alter(t, cluster.ListenAddrs()[0], topic, "cleanup.policy", "delete")

	client := newClient(t, cfg)
	found := readAll(t, client, topic, 0, 0, 200)
	if len(found) > 60 {
		t.Fatalf("%d records are left: nothing was compacted", len(found))
	}
	p = open(t, cfg)
	if rec, offset, ok := last(p, topic, 0); !ok || string(rec.Value) != "99" || offset != 100 {
		t.Errorf("%q at %d (%t), want 99 at 100", rec.Value, offset, ok)
	}
}

// deleteRecords does what retention does: everything below the offset is gone; -1 means everything.
func deleteRecords(t *testing.T, addr, topic string, below int64) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	req := kmsg.NewPtrDeleteRecordsRequest()
	rt := kmsg.NewDeleteRecordsRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewDeleteRecordsRequestTopicPartition()
	rp.Offset = below
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	if code := resp.Topics[0].Partitions[0].ErrorCode; code != 0 {
		t.Fatalf("delete records: error %d", code)
	}
}

func newClient(t *testing.T, cfg kafka.Config) *kafka.Client {
	t.Helper()
	c, err := kafka.NewClient(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// readAll reads until the end, or until nothing more comes.
func readAll(t *testing.T, c *kafka.Client, topic string, partition int32, from, to int64) []schemas.Record {
	t.Helper()
	bounds, err := c.Offsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all []schemas.Record
	r := c.Reader(topic, partition, max(from, bounds[partition].First), min(to, bounds[partition].End))
	for {
		rec, _, err := r.Next(ctx)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, rec)
	}
}
