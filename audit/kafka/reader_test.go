package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"lapse/audit/kafka"
	"lapse/internal/kafkatest"
	"lapse/schemas"
)

func TestAReaderReadsWhatOthersWroteCompressedOrNot(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	for name, codec := range map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			topic := kafkatest.Topic(t, 1)
			produce(t, broker.Addr(), topic, 500, kgo.ProducerBatchCompression(codec))
			c := newClient(t, config(broker, topic))
			for _, from := range []int64{0, 1, 250, 499} {
				n := from
				err := c.ReadPartition(t.Context(), topic, 0, from, 500, func(rec *schemas.Record, offset int64) error {
					if offset != n || string(rec.Value) != strconv.FormatInt(n, 10) || rec.Key != nil ||
						len(rec.Headers) != 2 || string(rec.Headers[1].Value) != "v" || rec.Headers[0].Value != nil {
						return fmt.Errorf("%+v at %d, want %d", rec, offset, n)
					}
					n++
					return nil
				})
				if err != nil || n != 500 {
					t.Errorf("from %d: up to %d, %v", from, n, err)
				}
			}
		})
	}
}

func TestAReaderPassesTheMarkersOfForeignTransactions(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 1)
	client, err := kgo.NewClient(kgo.SeedBrokers(broker.Addr()), kgo.TransactionalID(topic), kgo.DefaultProduceTopic(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for n := range 5 {
		if err := client.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := client.ProduceSync(t.Context(), kgo.StringRecord(strconv.Itoa(n))).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := client.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
			t.Fatal(err)
		}
	}
	c := newClient(t, config(broker, topic))
	records := readAll(t, c, topic, 0, 0, 10)
	for n, rec := range records {
		if string(rec.Value) != strconv.Itoa(n) {
			t.Errorf("record %d is %q", n, rec.Value)
		}
	}
	if len(records) != 5 {
		t.Errorf("%d records, want 5", len(records))
	}
	// The end is a marker.
	p := open(t, kafka.Config{Brokers: []string{broker.Addr()}, TransactionalID: "ours", Topics: []kafka.Topic{{Name: topic}}})
	if rec, offset, ok := last(p, topic, 0); !ok || offset != 8 || string(rec.Value) != "4" {
		t.Errorf("the tail is %q at %d (%t), want 4 at 8", rec.Value, offset, ok)
	}
}

func TestAReaderWithoutEndWaitsForWhatComes(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 1)
	c := newClient(t, config(broker, topic))
	r := c.Reader(topic, 0, 0, kafka.NoEnd)
	for n := range 3 {
		produce(t, broker.Addr(), topic, 1)
		rec, offset, err := r.Next(t.Context())
		if err != nil || offset != int64(n) || string(rec.Value) != "0" {
			t.Fatalf("%+v at %d: %v", rec, offset, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, _, err := r.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the context's end", err)
	}
}

func TestAReaderSkipsNothingInSilence(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 1)
	produce(t, broker.Addr(), topic, 10)
	deleteRecords(t, broker.Addr(), topic, 4)
	c := newClient(t, config(broker, topic))
	for _, from := range []int64{0, 3, 11} {
		_, _, err := c.Reader(topic, 0, from, kafka.NoEnd).Next(t.Context())
		var offset *kafka.OffsetError
		if !errors.As(err, &offset) || offset.First != 4 || offset.End != 10 || offset.Offset != from {
			t.Errorf("from %d: %v, want an OffsetError", from, err)
		}
	}
	if rec, offset, err := c.Reader(topic, 0, 4, kafka.NoEnd).Next(t.Context()); err != nil || offset != 4 || string(rec.Value) != "4" {
		t.Errorf("%+v at %d: %v", rec, offset, err)
	}
}

func TestOffsetsSayWhereEachPartitionBeginsAndEnds(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 3)
	produce(t, broker.Addr(), topic, 10)
	deleteRecords(t, broker.Addr(), topic, 4)
	c := newClient(t, config(broker, topic))
	got, err := c.Offsets(t.Context(), topic)
	if err != nil {
		t.Fatal(err)
	}
	want := []kafka.Offsets{{First: 4, End: 10}, {}, {}}
	for i := range want {
		if len(got) != 3 || got[i] != want[i] {
			t.Fatalf("%+v, want %+v", got, want)
		}
	}
}

func TestATopicThatIsNotThereIsMissing(t *testing.T) {
	t.Parallel()
	cfg := config(kafkatest.Broker(t), "never-made")
	cfg.SetTiming(kafka.Timing{Missing: 100 * time.Millisecond})
	_, err := newClient(t, cfg).Offsets(t.Context(), "never-made")
	var missing *kafka.MissingTopicError
	if !errors.As(err, &missing) || missing.Topic != "never-made" {
		t.Errorf("%v, want a MissingTopicError", err)
	}
}

// produce writes records 0 to n-1 to partition 0, with another library.
func produce(t *testing.T, addr, topic string, n int, options ...kgo.Opt) {
	t.Helper()
	client, err := kgo.NewClient(append(options, kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var records []*kgo.Record
	for i := range n {
		records = append(records, &kgo.Record{
			Topic: topic, Value: []byte(strconv.Itoa(i)),
			Headers: []kgo.RecordHeader{{Key: "empty"}, {Key: "k", Value: []byte("v")}},
		})
	}
	if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}
