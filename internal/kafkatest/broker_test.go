package kafkatest_test

import (
	"fmt"
	"testing"

	"github.com/segmentio/kafka-go"

	"lapse/internal/kafkaserver"
	"lapse/internal/kafkatest"
)

func TestMain(m *testing.M) { kafkatest.Main(m) }

func TestReadAllReturnsEveryRecordOfEveryPartitionInOrder(t *testing.T) {
	t.Parallel()
	const partitions, each = 3, 50
	broker := kafkatest.Broker(t)
	topic := kafkatest.Topic(t, partitions)
	for number := range each {
		for partition := range 2 { // The third stays empty.
			produce(t, broker, topic, partition, number)
		}
	}
	records := kafkatest.ReadAll(t, topic)
	if len(records) != 2*each {
		t.Fatalf("%d records, want %d", len(records), 2*each)
	}
	for i, record := range records {
		partition, offset := int32(i/each), int64(i%each)
		value := fmt.Sprint(offset)
		if record.Partition != partition || record.Offset != offset || string(record.Value) != value ||
			record.Header("number") != value || string(record.Key) != "key" || record.Header("none") != "" {
			t.Fatalf("record %d is %+v, want partition %d, offset %d", i, record, partition, offset)
		}
	}
}

func TestAnEmptyTopicHasNoRecords(t *testing.T) {
	t.Parallel()
	if records := kafkatest.ReadAll(t, kafkatest.Topic(t, 2)); len(records) != 0 {
		t.Errorf("%d records", len(records))
	}
}

//lapse:long
func TestASoloBrokerMayBeKilled(t *testing.T) {
	t.Parallel()
	shared := kafkatest.Broker(t)
	solo := kafkatest.Solo(t, kafkaserver.Options{})
	if solo.Addr() == shared.Addr() {
		t.Fatal("the broker is shared")
	}
	topic := kafkatest.TopicOn(t, solo, 1)
	produce(t, solo, topic, 0, 7)
	if err := solo.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := solo.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if records := kafkatest.ReadAllOn(t, solo, topic); len(records) != 1 {
		t.Errorf("%d records after the kill, want 1", len(records))
	}
}

func produce(t *testing.T, broker *kafkaserver.Server, topic string, partition, number int) {
	t.Helper()
	client := &kafka.Client{Addr: kafka.TCP(broker.Addr())}
	value := []byte(fmt.Sprint(number))
	answer, err := client.Produce(t.Context(), &kafka.ProduceRequest{
		Topic: topic, Partition: partition, RequiredAcks: kafka.RequireAll,
		Records: kafka.NewRecordReader(kafka.Record{
			Key: kafka.NewBytes([]byte("key")), Value: kafka.NewBytes(value),
			Headers: []kafka.Header{{Key: "number", Value: value}, {Key: "number", Value: []byte("second")}},
		}),
	})
	if err == nil {
		err = answer.Error
	}
	if err != nil {
		t.Fatal(err)
	}
}
