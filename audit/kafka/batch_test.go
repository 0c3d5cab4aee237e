package kafka_test

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"lapse/audit/kafka"
	"lapse/schemas"
)

func TestWhatIsEncodedIsWhatTwoOtherLibrariesDecode(t *testing.T) {
	t.Parallel()
	rapid.Check(t, encodingProperty)
}

func FuzzWhatIsEncodedIsWhatTwoOtherLibrariesDecode(f *testing.F) {
	f.Fuzz(rapid.MakeFuzz(encodingProperty))
}

func encodingProperty(t *rapid.T) {
	maybeBytes := rapid.Custom(func(t *rapid.T) []byte {
		if rapid.Bool().Draw(t, "nil") {
			return nil
		}
		return rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "bytes")
	})
	header := rapid.Custom(func(t *rapid.T) schemas.Header {
		return schemas.Header{Key: rapid.String().Draw(t, "key"), Value: maybeBytes.Draw(t, "value")}
	})
	record := rapid.Custom(func(t *rapid.T) schemas.Record {
		return schemas.Record{
			Key: maybeBytes.Draw(t, "key"), Value: maybeBytes.Draw(t, "value"),
			Headers: rapid.SliceOfN(header, 0, 4).Draw(t, "headers"),
			Time:    time.UnixMilli(rapid.Int64Range(0, 1<<42).Draw(t, "time")).UTC(), // until 2109: franz-go ends in 2262
		}
	})
	records := rapid.SliceOfN(record, 1, 70).Draw(t, "records")
	producer := rapid.Int64Min(0).Draw(t, "producer")
	epoch := rapid.Int16Min(0).Draw(t, "epoch")
	sequence := rapid.Int32Min(0).Draw(t, "sequence")
	compression := rapid.SampledFrom([]kafka.Compression{kafka.Snappy, kafka.LZ4, kafka.Zstd, kafka.None}).Draw(t, "compression")

	wire := kafka.Encode(records, compression, producer, epoch, sequence)
	compare(t, "kafka-go", records, decodedByKafkaGo(t, wire, producer, epoch, sequence))
	compare(t, "franz-go", records, decodedByFranz(t, wire[4:], producer, epoch, sequence))
}

func decodedByKafkaGo(t *rapid.T, wire []byte, producer int64, epoch int16, sequence int32) []schemas.Record {
	var set protocol.RecordSet
	if n, err := set.ReadFrom(bytes.NewReader(wire)); err != nil || n != int64(len(wire)) {
		t.Fatalf("kafka-go read %d of %d bytes: %v", n, len(wire), err)
	}
	stream := set.Records.(*protocol.RecordStream)
	b := stream.Records[0].(*protocol.RecordBatch)
	if len(stream.Records) != 1 || b.ProducerID != producer || b.ProducerEpoch != epoch || b.BaseSequence != sequence ||
		b.Attributes.Transactional() || b.Attributes.Control() || b.BaseOffset != 0 {
		t.Fatalf("kafka-go sees the header %+v", b)
	}
	var all []schemas.Record
	for {
		rec, err := stream.ReadRecord()
		if err != nil {
			return all
		}
		got := schemas.Record{Time: rec.Time.UTC()}
		got.Key, _ = protocol.ReadAll(rec.Key)
		got.Value, _ = protocol.ReadAll(rec.Value)
		for _, h := range rec.Headers {
			got.Headers = append(got.Headers, schemas.Header{Key: h.Key, Value: h.Value})
		}
		if rec.Offset != int64(len(all)) {
			t.Fatalf("kafka-go sees offset %d at record %d", rec.Offset, len(all))
		}
		all = append(all, got)
	}
}

// decodedByFranz checks the CRC too.
func decodedByFranz(t *rapid.T, raw []byte, producer int64, epoch int16, sequence int32) []schemas.Record {
	var b kmsg.RecordBatch
	if err := b.ReadFrom(raw); err != nil {
		t.Fatal(err)
	}
	if b.ProducerID != producer || b.ProducerEpoch != epoch || b.FirstSequence != sequence {
		t.Fatalf("franz-go sees producer %d, epoch %d, sequence %d", b.ProducerID, b.ProducerEpoch, b.FirstSequence)
	}
	var latest time.Time
	partition := kmsg.NewFetchResponseTopicPartition()
	partition.RecordBatches = raw
	partition.HighWatermark = math.MaxInt64
	fetched, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{KeepControlRecords: true}, &partition,
		kgo.DefaultDecompressor(), nil)
	if fetched.Err != nil {
		t.Fatal(fetched.Err)
	}
	var all []schemas.Record
	for _, rec := range fetched.Records {
		got := schemas.Record{Key: rec.Key, Value: rec.Value, Time: rec.Timestamp.UTC()}
		for _, h := range rec.Headers {
			got.Headers = append(got.Headers, schemas.Header{Key: h.Key, Value: h.Value})
		}
		if got.Time.After(latest) {
			latest = got.Time
		}
		all = append(all, got)
	}
	if b.MaxTimestamp != latest.UnixMilli() {
		t.Fatalf("the header says the latest is of %d, the records say %d", b.MaxTimestamp, latest.UnixMilli())
	}
	return all
}

func compare(t *rapid.T, decoder string, want, got []schemas.Record) {
	if len(got) != len(want) {
		t.Fatalf("%s decodes %d of %d records", decoder, len(got), len(want))
	}
	for i := range want {
		w, g := want[i], got[i]
		if !same(w.Key, g.Key) || !same(w.Value, g.Value) || !w.Time.Equal(g.Time) || len(w.Headers) != len(g.Headers) {
			t.Fatalf("%s decodes record %d as %+v, want %+v", decoder, i, g, w)
		}
		for j := range w.Headers {
			if w.Headers[j].Key != g.Headers[j].Key || !bytes.Equal(w.Headers[j].Value, g.Headers[j].Value) {
				t.Fatalf("%s decodes header %d as %+v, want %+v", decoder, j, g.Headers[j], w.Headers[j])
			}
		}
	}
}

// same tells nil from empty, as Kafka does.
func same(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

func TestTheSequenceWrapsAsTheBrokersDoes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ from, plus, want int32 }{
		{0, 1, 1},
		{5, 10, 15},
		{math.MaxInt32, 1, 0},
		{math.MaxInt32 - 1, 1, math.MaxInt32},
		{math.MaxInt32 - 3, 10, 6},
	} {
		if got := kafka.SequencePlus(c.from, c.plus); got != c.want {
			t.Errorf("%d + %d = %d, want %d", c.from, c.plus, got, c.want)
		}
	}
}
