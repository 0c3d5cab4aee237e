package replication

import (
	"context"
	"testing"
	"time"

	"lapse/schemas"
)

func dataFrame(at schemas.LSN, message encoder) frame {
	body := append(encoder{'w'}.u64(uint64(at)).u64(uint64(at)).u64(micros(noon)), message...)
	return frame{kind: 'd', body: body}
}

func keepaliveFrame(end schemas.LSN, ask byte) frame {
	return frame{kind: 'd', body: encoder{'k'}.u64(uint64(end)).u64(micros(noon)).u8(ask)}
}

// bareStream is a stream without a server. What it would send nobody reads.
func bareStream(t *testing.T, startedAt schemas.LSN) *Stream {
	t.Helper()
	s := &Stream{
		wire: &wire{Conn: closedConn(t)}, decoder: testDecoder(), startedAt: startedAt, sent: startedAt,
		status: statuses{interval: time.Hour, sent: startedAt, sentAt: time.Now()},
	}
	s.Confirm(startedAt)
	return s
}

func handle(t *testing.T, s *Stream, f frame) *Message {
	t.Helper()
	m, err := s.handle(f)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Whatever a caller confirms, and whenever: the end of a transaction is told only after the whole of it was delivered.
func TestAPositionInsideAnOpenTransactionIsNotToldEvenIfItIsConfirmed(t *testing.T) {
	t.Parallel()
	s := bareStream(t, 10)
	want := func(position schemas.LSN) {
		t.Helper()
		if got := s.report(); got != position {
			t.Fatalf("would tell %s, want %s", got, position)
		}
	}
	if m := handle(t, s, keepaliveFrame(50, 0)); m.Open || m.Tx != nil || m.WALEnd != 50 || m.ReplyRequested {
		t.Fatalf("between transactions: %+v", m)
	}
	want(10)
	s.Confirm(50)
	want(50)
	handle(t, s, dataFrame(60, beginMessage(100, 7)))
	if m := handle(t, s, keepaliveFrame(200, 0)); !m.Open || m.Tx == nil || m.Tx.XID != 7 {
		t.Fatalf("inside: %+v", m)
	}
	s.Confirm(200)
	want(50)
	handle(t, s, dataFrame(140, commitMessage(100, 140)))
	want(140)
	s.Confirm(20)
	want(140)
	handle(t, s, keepaliveFrame(300, 0))
	want(200)
}

// statusSize is a CopyData message with a standby status update in it.
const statusSize = headerSize + 1 + 3*8 + 8 + 1

// A status is checked as it is on the wire: what is sent decides what the server throws away.
func TestAStatusSaysTheSameInAllItsPositions(t *testing.T) {
	t.Parallel()
	for _, at := range []schemas.LSN{0, 1, 0x1234567890} {
		for _, ask := range []bool{false, true} {
			s, there := pipedStream(t)
			s.sent = at
			s.Confirm(at)
			if ask {
				s.Ask()
			}
			if err := s.sendStatus(noon); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, statusSize+1)
			if n, err := there.Read(got); err != nil || n != statusSize {
				t.Fatalf("%d bytes, %v", n, err)
			}
			c := cursor{rest: got[:statusSize]}
			if frame, size, kind := c.byte(), c.uint32(), c.byte(); frame != 'd' || size != statusSize-1 || kind != 'r' {
				t.Fatalf("%x", got)
			}
			if w, f, a := c.lsn(), c.lsn(), c.lsn(); w != at || f != at || a != at {
				t.Errorf("written %s, flushed %s, applied %s, want %s", w, f, a, at)
			}
			if sent := c.uint64(); sent != micros(noon) {
				t.Errorf("sent at %d", sent)
			}
			if asks := c.byte(); (asks == 1) != ask || asks > 1 || c.short || len(c.rest) != 0 {
				t.Errorf("ask %v: asks %d, %d bytes follow", ask, asks, len(c.rest))
			}
		}
	}
}

func TestAnswersKeepAPauseAndTwoRequestsInATenthOfASecondMeanAShutdown(t *testing.T) {
	t.Parallel()
	began := noon
	s := statuses{interval: 10 * time.Second, sent: 5, sentAt: began}
	after := func(d time.Duration) time.Time { return began.Add(d) }

	if due := s.due(5); !due.Equal(after(10 * time.Second)) {
		t.Errorf("with nothing to tell, due after %v", due.Sub(began))
	}
	if due := s.due(6); !due.Equal(after(time.Second)) {
		t.Errorf("with a position to tell, due after %v", due.Sub(began))
	}
	if s.asked(after(5 * time.Millisecond)) {
		t.Error("one request means a shutdown")
	}
	if due := s.due(5); !due.Equal(after(answerPause)) {
		t.Errorf("asked soon after a status, due after %v", due.Sub(began))
	}
	s.sentAt, s.answerAt = after(answerPause), time.Time{}
	if !s.asked(after(answerPause + time.Millisecond)) {
		t.Error("two requests at once do not mean a shutdown")
	}
	s.sentAt, s.answerAt = after(40*time.Millisecond), time.Time{}
	if s.asked(after(30 * time.Second)) {
		t.Error("two requests half a minute apart mean a shutdown")
	}
	if due := s.due(5); due.After(after(30 * time.Second)) {
		t.Errorf("asked long after a status, due %v later", due.Sub(after(30*time.Second)))
	}
}

// flush tells the server the confirmed position now.
func (s *Stream) flush(ctx context.Context) error {
	switch {
	case s.err != nil:
		return s.err
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return s.sendStatus(time.Now())
	}
}
