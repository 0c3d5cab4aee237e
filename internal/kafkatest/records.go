package kafkatest

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kgo"

	"lapse/internal/kafkaserver"
)

// Record is one record of a topic.
type Record struct {
	Partition int32
	Offset    int64
	Key       []byte
	Value     []byte
	Headers   []Header
	Time      time.Time
}

// Header is one header of a record. A name may occur more than once.
type Header struct {
	Name  string
	Value []byte
}

// Header is the value of the first header of that name, or "" if there is none.
func (r Record) Header(name string) string {
	for _, header := range r.Headers {
		if header.Name == name {
			return string(header.Value)
		}
	}
	return ""
}

// readTimeout is far above what a loopback broker needs for any test's topic.
const readTimeout = 60 * time.Second

// ReadAll reads a topic of the shared broker: every record of every partition up to its current end, by partition and
// offset. It reads with another library than the one Lapse publishes with.
func ReadAll(t testing.TB, topic string) []Record {
	t.Helper()
	return ReadAllOn(t, Broker(t), topic)
}

// ReadAllOn is ReadAll for a broker from Solo.
func ReadAllOn(t testing.TB, broker *kafkaserver.Server, topic string) []Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), readTimeout)
	defer cancel()
	records, err := readAll(ctx, broker.Addr(), topic)
	if err != nil {
		t.Fatalf("read topic %s: %v", topic, err)
	}
	return records
}

func readAll(ctx context.Context, addr, topic string) ([]Record, error) {
	ends, err := endOffsets(ctx, addr, topic)
	if err != nil {
		return nil, err
	}
	from := map[int32]kgo.Offset{}
	for partition, end := range ends {
		if end > 0 {
			from[partition] = kgo.NewOffset().AtStart()
		}
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(addr),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
		kgo.KeepControlRecords(), // One may be the last before the end.
		kgo.FetchMaxWait(100*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()

	var records []Record
	for len(from) > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return nil, fmt.Errorf("%d partitions are not read to their end: %w", len(from), err)
		}
		if errs := fetches.Errors(); len(errs) > 0 {
			return nil, errs[0].Err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			if !record.Attrs.IsControl() && record.Offset < ends[record.Partition] {
				records = append(records, convert(record))
			}
			if record.Offset >= ends[record.Partition]-1 {
				delete(from, record.Partition)
			}
		})
	}
	slices.SortFunc(records, func(a, b Record) int {
		if a.Partition != b.Partition {
			return int(a.Partition - b.Partition)
		}
		return int(a.Offset - b.Offset)
	})
	return records, nil
}

func convert(record *kgo.Record) Record {
	converted := Record{
		Partition: record.Partition, Offset: record.Offset, Key: record.Key, Value: record.Value, Time: record.Timestamp,
	}
	for _, header := range record.Headers {
		converted.Headers = append(converted.Headers, Header{Name: header.Key, Value: header.Value})
	}
	return converted
}

// endOffsets is where each partition of the topic ends. It asks again while a broker that has just started does not lead
// every partition.
func endOffsets(ctx context.Context, addr, topic string) (map[int32]int64, error) {
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	for {
		ends, err := tryEndOffsets(ctx, addr, topic)
		if err == nil {
			return ends, nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// tryEndOffsets asks over a connection of its own: a kafka.Client answers from what it has seen within the last seconds.
func tryEndOffsets(ctx context.Context, addr, topic string) (map[int32]int64, error) {
	transport := &kafka.Transport{}
	defer transport.CloseIdleConnections()
	client := &kafka.Client{Addr: kafka.TCP(addr), Transport: transport}
	metadata, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return nil, err
	}
	if err := metadata.Topics[0].Error; err != nil {
		return nil, err
	}
	var wanted []kafka.OffsetRequest
	for _, partition := range metadata.Topics[0].Partitions {
		wanted = append(wanted, kafka.LastOffsetOf(partition.ID))
	}
	answer, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: wanted}})
	if err != nil {
		return nil, err
	}
	ends := map[int32]int64{}
	for _, partition := range answer.Topics[topic] {
		if partition.Error != nil {
			return nil, partition.Error
		}
		ends[int32(partition.Partition)] = partition.LastOffset
	}
	if len(ends) != len(wanted) {
		return nil, fmt.Errorf("%d of %d partitions answered", len(ends), len(wanted))
	}
	return ends, nil
}
