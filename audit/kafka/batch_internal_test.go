package kafka

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/protocol"
	"pgregory.net/rapid"

	"lapse/schemas"
)

func TestABatchNeverOutgrowsItsLimit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(headerSize, 5000).Draw(t, "limit")
		b := new(batch)
		b.reset()
		for range rapid.IntRange(1, 50).Draw(t, "records") {
			before, count := len(b.buf), b.count
			rec := schemas.Record{
				Value: make([]byte, rapid.IntRange(0, 600).Draw(t, "value")),
				Time:  time.UnixMilli(rapid.Int64Range(0, 1<<45).Draw(t, "time")),
			}
			added := b.add(&rec, limit)
			if b.size() > limit {
				t.Fatalf("%d bytes, limit %d", b.size(), limit)
			}
			if len(b.buf) != before+added || (added == 0) != (b.count == count) {
				t.Fatalf("said %d bytes, added %d", added, len(b.buf)-before)
			}
		}
	})
}

func TestABatchOfOldRecordsGetsAYoungFence(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_800_000_000_000)
	for _, c := range []struct {
		age   time.Duration
		count int32
	}{
		{time.Hour, 2},
		{30 * 24 * time.Hour, 2},
		{time.Hour - time.Millisecond, 1},
		{-time.Hour, 1}, // the database's clock is ahead
	} {
		b := new(batch)
		b.reset()
		b.add(&schemas.Record{Value: []byte("v"), Time: now.Add(-c.age)}, math.MaxInt)
		b.addFenceIfOld(now, time.Hour, []schemas.Header{{Key: "lapse-db", Value: []byte("app")}})
		b.seal(nil, session{}, 0)
		records := decode(t, b.buf)
		if int32(len(records)) != c.count {
			t.Fatalf("%s old: %d records, want %d", c.age, len(records), c.count)
		}
		if last := records[len(records)-1].Record; c.count == 2 && (!last.IsFence() || !last.Time.Equal(now)) {
			t.Errorf("%s old: the last record is %+v, want a fence of now", c.age, last)
		}
	}
}

func TestTheRoomLeftInABatchTakesItsFence(t *testing.T) {
	t.Parallel()
	headers := []schemas.Header{{Key: "lapse-sysid", Value: []byte("7381")}, {Key: "lapse-db", Value: []byte("app")}}
	p := &Publisher{cfg: Config{FenceHeaders: headers}}
	const size = 10_000
	b := new(batch)
	b.reset()
	rec := schemas.Record{Value: make([]byte, 7), Time: time.UnixMilli(0)} // the delta to now is as long as it gets
	for b.add(&rec, p.limit(size)) > 0 {
		rec.Value = make([]byte, 1)
	}
	b.addFenceIfOld(time.Now(), time.Hour, headers)
	if b.size() > size || b.size() < size-40 {
		t.Errorf("%d bytes with the fence, the broker takes %d", b.size(), size)
	}
}

func TestAddingARecordAllocatesNothing(t *testing.T) {
	rec := schemas.Record{
		Key: []byte(`{"id":"42"}`), Value: make([]byte, 400), Time: time.UnixMilli(1_800_000_000_000),
		Headers: []schemas.Header{{Key: "lapse-cause", Value: []byte("system")}, {Key: "lapse-op", Value: []byte("delete")}},
	}
	b := new(batch)
	b.reset()
	allocs := testing.AllocsPerRun(1000, func() {
		if b.add(&rec, 100_000) == 0 {
			b.reset()
		}
	})
	if allocs >= 0.1 {
		t.Errorf("%.2f allocations a record", allocs)
	}
}

func TestABatchThatWouldNotGetShorterIsSentAsItIs(t *testing.T) {
	t.Parallel()
	noise := make([]byte, 100_000)
	source := rand.NewChaCha8([32]byte{})
	if _, err := source.Read(noise); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []Compression{"", Snappy, LZ4, Zstd} {
		codec, err := kind.codec()
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			value   []byte
			shorter bool
		}{
			"a short record": {[]byte("v"), false},
			"noise":          {noise, false},
			"an event":       {bytes.Repeat([]byte(`{"keys":{"id":"42"}}`), 50), true},
		} {
			b := new(batch)
			b.reset()
			b.add(&schemas.Record{Value: c.value, Time: time.UnixMilli(1)}, math.MaxInt)
			b.seal(codec, session{}, 0)
			if b.sent() > b.size() || (b.sent() < b.size()) != c.shorter {
				t.Errorf("%s, %q: %d bytes are sent of %d", name, kind, b.sent(), b.size())
			}
			if got := decode(t, b.wire); len(got) != 1 || !bytes.Equal(got[0].Record.Value, c.value) {
				t.Errorf("%s, %q: decoded as something else", name, kind)
			}
			first := bytes.Clone(b.wire)
			b.reset()
			b.add(&schemas.Record{Value: []byte("another batch in the same memory"), Time: time.UnixMilli(1)}, math.MaxInt)
			b.reset()
			b.add(&schemas.Record{Value: c.value, Time: time.UnixMilli(1)}, math.MaxInt)
			if b.seal(codec, session{}, 0); !bytes.Equal(b.wire, first) {
				t.Errorf("%s, %q: the same records make another batch", name, kind)
			}
		}
	}
}

func TestSealingABatchAllocatesNothingToSpeakOf(t *testing.T) {
	codec, err := Snappy.codec()
	if err != nil {
		t.Fatal(err)
	}
	rec := schemas.Record{Value: bytes.Repeat([]byte(`{"keys":{"id":"42"}}`), 20), Time: time.UnixMilli(1_800_000_000_000)}
	b := new(batch)
	allocs := testing.AllocsPerRun(100, func() {
		b.reset()
		for range 100 {
			b.add(&rec, math.MaxInt)
		}
		b.seal(codec, session{}, 0)
	})
	if allocs > 5 { // the codec's writer and the appender
		t.Errorf("%.1f allocations for a batch of 100 records", allocs)
	}
}

func TestAClosedBodyIsNotSent(t *testing.T) {
	t.Parallel()
	sent := &body{bytes: []byte("batch")}
	var wire bytes.Buffer
	if n, err := sent.WriteTo(&wire); n != 5 || err != nil {
		t.Fatalf("%d bytes, %v", n, err)
	}
	sent.close()
	if n, err := sent.WriteTo(&wire); n != 0 || err == nil {
		t.Errorf("%d bytes from a closed body, error %v", n, err)
	}
}

// decode reads a batch back with kafka-go's decoder.
func decode(t testing.TB, buf []byte) []Stored {
	t.Helper()
	var set protocol.RecordSet
	if _, err := set.ReadFrom(bytes.NewReader(buf)); err != nil {
		t.Fatal(err)
	}
	var all []Stored
	for _, records := range set.Records.(*protocol.RecordStream).Records {
		got, err := readAll(records)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, got...)
	}
	return all
}
