package kafka_test

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/protocol"

	"lapse/audit/kafka"
	"lapse/internal/kafkatest"
)

// The tail of each publisher is what the one before has written, compressed in its way.
func TestRecordsAreThereOnceHoweverTheyAreCompressed(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, 3)
	s := newSource(topic, 3, 0)
	for _, kind := range []kafka.Compression{"", kafka.None, kafka.LZ4, kafka.Zstd, kafka.Snappy} {
		cfg := config(broker, topic)
		cfg.Compression = kind
		cfg.MaxBatchBytes = 4000
		net := newNetwork(func(n int) fate { return []fate{pass, loseAnswer}[n%2] })
		cfg.Dial = net.Dial
		s.total += 1000
		s.publishAll(t, cfg)
	}
	s.verify(t, broker)
}

func TestBatchesAreCompressedUnlessToldOtherwise(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	for kind, want := range map[kafka.Compression]compress.Compression{
		"": compress.Snappy, kafka.Snappy: compress.Snappy, kafka.LZ4: compress.Lz4, kafka.Zstd: compress.Zstd, kafka.None: compress.None,
	} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			topic := kafkatest.Topic(t, 1)
			cfg := config(broker, topic)
			cfg.Compression = kind
			p := open(t, cfg)
			rec := newSource(topic, 1, 1).record(0)
			rec.Value = bytes.Repeat([]byte("a record that can be shortened, "), 30)
			waitAcked(t, p, mustAppend(t, p, rec))
			if got := compressionAt(t, cfg, 1); got != want {
				t.Errorf("the batch is compressed as %v, want %v", got, want)
			}
		})
	}
}

// compressionAt is that of the batch at an offset of partition 0.
func compressionAt(t *testing.T, cfg kafka.Config, offset int64) compress.Compression {
	t.Helper()
	transport := &kafkago.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := &kafkago.Client{Addr: kafkago.TCP(cfg.Brokers...), Transport: transport}
	resp, err := client.Fetch(t.Context(), &kafkago.FetchRequest{
		Topic: cfg.Topics[0].Name, Offset: offset, MinBytes: 1, MaxBytes: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	return resp.Records.(*protocol.RecordStream).Records[0].(*protocol.RecordBatch).Attributes.Compression()
}

func TestAnUnknownCompressionIsRefused(t *testing.T) {
	t.Parallel()
	cfg := config(kafkatest.Broker(t), kafkatest.Name())
	cfg.Compression = "gzip"
	if _, err := kafka.Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), `"gzip"`) || !strings.Contains(err.Error(), "zstd") {
		t.Errorf("%v", err)
	}
}

// A topic takes a batch by its compressed length, and a batch is filled by its length before: what cannot be shortened is
// taken too.
func TestABatchThatCannotBeShortenedStillFits(t *testing.T) {
	t.Parallel()
	broker := kafkatest.Broker(t)
	topic := kafkatest.Name()
	if err := broker.CreateTopic(t.Context(), topic, 1, map[string]string{"max.message.bytes": "5000"}); err != nil {
		t.Fatal(err)
	}
	p := open(t, config(broker, topic))
	rec := newSource(topic, 1, 1).record(0)
	rec.Value = make([]byte, 1000)
	noise := rand.NewChaCha8([32]byte{})
	var number uint64
	for range 40 {
		_, _ = noise.Read(rec.Value) // never fails
		number = mustAppend(t, p, rec)
	}
	waitAcked(t, p, number)
}

func TestATopicMayBeCompressedInAWayOfItsOwn(t *testing.T) {
	t.Parallel()
	topic := kafkatest.Topic(t, 1)
	cfg := config(kafkatest.Broker(t), topic)
	cfg.Compression, cfg.Topics[0].Compression = kafka.None, kafka.Zstd
	p := open(t, cfg)
	rec := newSource(topic, 1, 1).record(0)
	rec.Value = bytes.Repeat([]byte("a record that can be shortened, "), 30)
	waitAcked(t, p, mustAppend(t, p, rec))
	if got := compressionAt(t, cfg, 1); got != compress.Zstd {
		t.Errorf("the batch is compressed as %v", got)
	}
	cfg.Topics[0].Compression = "brotli"
	if _, err := kafka.Open(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "brotli") {
		t.Errorf("opened with a compression that nobody knows: %v", err)
	}
}
