package kafka_test

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"lapse/internal/kafkaserver"
)

// producerWatch knows when the broker has looked for producers to forget.
type producerWatch struct {
	t      *testing.T
	client *kgo.Client
	topic  string
}

func newProducerWatch(t *testing.T, broker *kafkaserver.Server, topic string) *producerWatch {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Addr()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	return &producerWatch{t: t, client: client, topic: topic}
}

func (w *producerWatch) stop() { w.client.Close() }

// waitForALook waits until the broker has forgotten another producer, whose one record is of the day before yesterday. It
// marks that record as a fence, so that the test's oracle skips it.
func (w *producerWatch) waitForALook() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	other, err := kgo.NewClient(kgo.SeedBrokers(w.client.OptValue(kgo.SeedBrokers).([]string)...))
	if err != nil {
		w.t.Error(err)
		return
	}
	defer other.Close()
	err = other.ProduceSync(ctx, &kgo.Record{
		Topic: w.topic, Timestamp: time.Now().Add(-48 * time.Hour),
		Headers: []kgo.RecordHeader{{Key: "lapse-op", Value: []byte("fence")}},
	}).FirstErr()
	if err != nil {
		w.t.Error(err)
		return
	}
	producer, _, err := other.ProducerID(ctx)
	if err != nil {
		w.t.Error(err)
		return
	}
	for w.remembers(ctx, producer) && ctx.Err() == nil {
		pause(20 * time.Millisecond)
	}
}

func (w *producerWatch) remembers(ctx context.Context, producer int64) bool {
	req := kmsg.NewPtrDescribeProducersRequest()
	topic := kmsg.NewDescribeProducersRequestTopic()
	topic.Topic, topic.Partitions = w.topic, []int32{0}
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, w.client)
	if err != nil {
		w.t.Error(err)
		return false
	}
	for _, active := range resp.Topics[0].Partitions[0].ActiveProducers {
		if active.ProducerID == producer {
			return true
		}
	}
	return false
}

// pause is between two checks of a condition.
func pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}
