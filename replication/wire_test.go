package replication

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// closedConn is a connection for code that only closes it.
func closedConn(t *testing.T) net.Conn {
	t.Helper()
	here, there := net.Pipe()
	_ = there.Close()
	t.Cleanup(func() { _ = here.Close() })
	return here
}

// framed is a message as it is on the wire.
func framed(kind byte, body []byte) []byte {
	out := binary.BigEndian.AppendUint32([]byte{kind}, uint32(4+len(body)))
	return append(out, body...)
}

// pipedWire is a wire on which another goroutine writes chunks, and then leaves it open.
func pipedWire(chunks [][]byte) *wire {
	here, there := net.Pipe()
	go func() {
		for _, chunk := range chunks {
			if _, err := there.Write(chunk); err != nil {
				return
			}
		}
	}()
	return newWire(here)
}

func readFrame(w *wire) (frame, error) {
	for {
		if f, ok, err := w.frame(); ok || err != nil {
			return f, err
		}
		if err := w.fill(); err != nil {
			return frame{}, err
		}
	}
}

// What follows the last message that pgconn reads belongs to the stream, in whatever pieces it came.
func TestTheStreamTakesOverAllThatPgconnDidNotUse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		bodies := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 40), 1, 12).Draw(t, "bodies")
		var all []byte
		for i, body := range bodies {
			all = append(all, framed(byte('a'+i), body)...)
		}
		var chunks [][]byte
		for rest := all; len(rest) > 0; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "chunk")
			chunks = append(chunks, rest[:n])
			rest = rest[n:]
		}
		w := pipedWire(chunks)
		defer func() { _ = w.Close() }()

		theirs := rapid.IntRange(0, len(bodies)).Draw(t, "read by pgconn")
		for i := range theirs {
			want := framed(byte('a'+i), bodies[i])
			got := make([]byte, len(want)+1000)
			// pgconn asks for as much as its buffer holds.
			var n int
			for n < len(want) {
				read, err := w.Read(got[n:])
				if err != nil {
					t.Fatal(err)
				}
				n += read
			}
			if !bytes.Equal(got[:n], want) {
				t.Fatalf("message %d: got %d bytes, want %d", i, n, len(want))
			}
		}
		if err := w.takeOver(); err != nil {
			t.Fatal(err)
		}
		for i := theirs; i < len(bodies); i++ {
			f, err := readFrame(w)
			if err != nil || f.kind != byte('a'+i) || !bytes.Equal(f.body, bodies[i]) {
				t.Fatalf("message %d: %q %x, %v", i, f.kind, f.body, err)
			}
			w.skip(f)
		}
		w.interrupt()
		if err := w.fill(); !isTimeout(err) || w.r != w.w {
			t.Fatalf("at the end: %v", err)
		}
	})
}

func TestAMessageLargerThanTheBufferIsReadWhole(t *testing.T) {
	t.Parallel()
	large := bytes.Repeat([]byte("x"), 5*readBuffer)
	w := pipedWire(slices.Collect(slices.Chunk(slices.Concat(framed('a', large), framed('b', nil)), 100_000)))
	defer func() { _ = w.Close() }()
	for _, want := range []int{len(large), 0} {
		f, err := readFrame(w)
		if err != nil || len(f.body) != want {
			t.Fatalf("%d bytes, %v", len(f.body), err)
		}
		w.skip(f)
	}
	w.interrupt()
	if err := w.fill(); !isTimeout(err) || len(w.buf) != readBuffer {
		t.Fatalf("%v, and a buffer of %d bytes", err, len(w.buf))
	}
}

func TestALengthThatCannotBeIsRefused(t *testing.T) {
	t.Parallel()
	for _, size := range []uint32{0, 3, maxMessage + 1, 1<<32 - 1} {
		w := pipedWire([][]byte{binary.BigEndian.AppendUint32([]byte{'d'}, size)})
		if err := w.fill(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := w.frame(); !errors.Is(err, errFrame) || GradeOf(err) != Stop {
			t.Errorf("%d bytes: %v", size, err)
		}
		_ = w.Close()
	}
}

func TestAnInterruptionEndsOneReadAndOnlyOne(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe()
	defer func() { _ = there.Close() }()
	w := newWire(here)
	defer func() { _ = w.Close() }()
	timer := time.AfterFunc(20*time.Millisecond, w.interrupt)
	defer timer.Stop()
	if err := w.fill(); !isTimeout(err) {
		t.Fatalf("got %v", err)
	}
	if err := w.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = there.Write(framed('a', nil)) }()
	if err := w.fill(); err != nil {
		t.Fatalf("got %v", err)
	}
}

// What is skipped before it is there is thrown away as it comes, and what follows is whole and at its place.
func TestAMessageSkippedByItsHeadLeavesWhatFollowsWhole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		large := framed('d', make([]byte, rapid.IntRange(largeMessage, 3*largeMessage).Draw(t, "size")))
		small := framed('k', []byte("small"))
		all := slices.Concat(small, large, small, large, small)
		var chunks [][]byte
		for rest := all; len(rest) > 0; {
			n := min(len(rest), rapid.IntRange(1, readBuffer+100).Draw(t, "chunk"))
			chunks = append(chunks, rest[:n])
			rest = rest[n:]
		}
		w := pipedWire(chunks)
		defer func() { _ = w.Close() }()
		at, seen := int64(0), 0
		for seen < 5 {
			f, ok, err := w.frame()
			if err != nil {
				t.Fatal(err)
			}
			if ok || f.size() > largeMessage && len(f.body) > 100 {
				if seen++; f.start != at {
					t.Fatalf("message %d is at %d, want %d", seen, f.start, at)
				}
				if at = f.end; f.kind == 'k' && string(f.body) != "small" {
					t.Fatalf("message %d is damaged", seen)
				}
				w.skip(f)
				continue
			}
			if err := w.fill(); err != nil {
				t.Fatal(err)
			}
			if len(w.buf) > 2*readBuffer {
				t.Fatalf("the buffer has %d bytes", len(w.buf))
			}
		}
	})
}
