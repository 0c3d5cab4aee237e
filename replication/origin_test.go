package replication

import (
	"math"
	"slices"
	"testing"
	"time"
)

func TestTheBeginWaitsForTheOriginThatMayFollow(t *testing.T) {
	t.Parallel()
	d := testDecoder()
	if m, err := d.decode(beginMessage(100, 7)); m != nil || err != nil {
		t.Fatal(m, err)
	}
	if m := d.pending(0); m != nil {
		t.Fatal("delivered before it is known whether an origin follows")
	}
	if m := d.pending('O'); m != nil {
		t.Fatal("delivered before the origin that follows")
	}
	if m := d.pending('D'); m == nil || m.Kind != KindBegin {
		t.Fatal("not delivered although something else follows")
	}
}

// The server sends begin and origin one after the other, and between two messages it may send whatever is not pgoutput's.
func TestWhatIsNotOfTheTransactionMayComeBetweenBeginAndOrigin(t *testing.T) {
	t.Parallel()
	for name, between := range map[string]frame{
		"a keepalive": keepaliveFrame(300, 0),
		"a parameter": {kind: 'S', body: []byte("application_name\x00lapse\x00")},
	} {
		s := bareStream(t, 10)
		for _, f := range []frame{dataFrame(60, beginMessage(100, 7)), between, dataFrame(60, originMessage("elsewhere")), dataFrame(140, commitMessage(100, 140))} {
			s.wire.buf = append(s.wire.buf, framed(f.kind, f.body)...)
		}
		s.wire.w = len(s.wire.buf)
		var kinds []Kind
		var origin string
		for s.decoder.open() || len(kinds) == 0 {
			m, err := s.Next(t.Context())
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if kinds = append(kinds, m.Kind); m.Kind == KindKeepalive && !m.Open {
				t.Errorf("%s: no transaction is open at the keepalive", name)
			}
			if m.Kind == KindBegin {
				origin = m.Tx.Origin
			}
		}
		kinds = slices.DeleteFunc(kinds, func(k Kind) bool { return k == KindKeepalive })
		if origin != "elsewhere" || !slices.Equal(kinds, []Kind{KindBegin, KindCommit}) {
			t.Errorf("%s: delivered %v, of origin %q", name, kinds, origin)
		}
	}
}

// A session with a replication origin names any time for its commit.
func TestACommitTimeIsTheNearestThatAllReadersKnow(t *testing.T) {
	t.Parallel()
	const first, last, micro = "1970-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", time.Microsecond
	year2000 := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	of := func(text string, more time.Duration) int64 {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatal(err)
		}
		return at.UnixMicro() + more.Microseconds() - year2000.UnixMicro()
	}
	for micros, want := range map[int64]string{
		math.MinInt64: first, math.MinInt64 + 1: first, of(first, -micro): first, of(first, 0): first, of(first, micro): "1970-01-01T00:00:00.000001Z",
		of(last, -micro): "9999-12-31T23:59:59.999998Z", of(last, 0): last, of(last, micro): last, math.MaxInt64 - 1: last, math.MaxInt64: last,
	} {
		var got []string
		err := feed(testDecoder(), []encoder{message('B').u64(100).u64(uint64(micros)).u32(7), message('C').u8(0).u64(100).u64(140).u64(uint64(micros))},
			func(m *Message) { got = append(got, m.Tx.CommitTime.Format(time.RFC3339Nano)) }) // both messages
		if err != nil || !slices.Equal(got, []string{want, want}) {
			t.Errorf("%d: %s, %v, want %s", micros, got, err, want)
		}
	}
}
