package replication

import (
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

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

func TestAStatusSaysTheSameInAllItsPositions(t *testing.T) {
	t.Parallel()
	const at schemas.LSN = 0x1234567890
	got := appendStatus(nil, at, false, noon)
	if len(got) != statusSize || got[0] != 'd' || got[5] != 'r' {
		t.Fatalf("%x", got)
	}
	c := cursor{rest: got[6:]}
	if w, f, a := c.lsn(), c.lsn(), c.lsn(); w != at || f != at || a != at {
		t.Errorf("written %s, flushed %s, applied %s", w, f, a)
	}
	if sent := pglogrepl.LSN(c.uint64()); uint64(sent) != micros(noon) {
		t.Errorf("sent at %d", sent)
	}
	if ask := c.byte(); ask != 0 || c.short || len(c.rest) != 0 {
		t.Errorf("asks %d, %d bytes follow", ask, len(c.rest))
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
