package folder_test

import (
	"testing"

	"lapse/audit/folder"
	"lapse/schemas"
)

// BenchmarkPublisher publishes records of the size of events, into six partitions of two topics, as fast as they are taken.
func BenchmarkPublisher(b *testing.B) {
	p, err := folder.Open(b.Context(), folder.Config{
		Dir: b.TempDir() + "/sink", Topics: []folder.Topic{{Name: events, Partitions: 6}, {Name: log, Partitions: 1, Forever: true}},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = p.Close(b.Context()) }()
	rec := record(events, 0, "key")
	rec.Value = make([]byte, 400)
	for range 6 {
		rec.Headers = append(rec.Headers, schemas.Header{Key: "lapse-header", Value: []byte("a value")})
	}
	b.ReportAllocs()
	for i := 0; i < b.N; {
		rec.Partition = int32(i % 6)
		if _, ok := p.Append(rec); ok {
			i++
			continue
		}
		if err := p.Err(); err != nil {
			b.Fatal(err)
		}
		<-p.Progress()
	}
}
