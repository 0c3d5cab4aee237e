package kafka_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"lapse/audit/kafka"
	"lapse/internal/kafkatest"
	"lapse/schemas"
)

// BenchmarkPublish publishes records like the auditor's, of 400 bytes with 8 headers, to 6 partitions of a real broker
// that shares this machine.
func BenchmarkPublish(b *testing.B) {
	topic := kafkatest.Topic(b, 6)
	p, err := kafka.Open(b.Context(), config(kafkatest.Broker(b), topic))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := p.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	rec := benchRecord(topic)
	b.ReportAllocs()
	b.ResetTimer()
	for n := range b.N {
		rec.Key = strconv.AppendInt(rec.Key[:0], int64(n), 10)
		rec.Partition = int32(n % 6)
		for {
			if _, ok := p.Append(rec); ok {
				break
			}
			<-p.Progress()
			if err := p.Err(); err != nil {
				b.Fatal(err)
			}
		}
	}
	for p.Acked() < uint64(b.N) {
		<-p.Progress()
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

// BenchmarkAppend is the part of the caller's goroutine: encoding.
func BenchmarkAppend(b *testing.B) {
	rec := benchRecord("topic")
	rec.Key = []byte("12345")
	encode := kafka.Encoder()
	b.ReportAllocs()
	for b.Loop() {
		encode(&rec)
	}
}

func benchRecord(topic string) schemas.Record {
	rec := schemas.Record{Topic: topic, Value: make([]byte, 400), Time: time.Now()}
	for _, h := range []string{"cause", "op", "policy", "table", "run", "lsn", "seq", "schema"} {
		rec.Headers = append(rec.Headers, schemas.Header{Key: "lapse-" + h, Value: []byte("0123456789abcdef")})
	}
	return rec
}
