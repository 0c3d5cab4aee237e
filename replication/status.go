package replication

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"

	"lapse/schemas"
)

// statusUpdate is the only place that makes status updates. The three positions of the protocol (written, flushed, applied) are all the
// durable one: if flushed is empty, a server uses written, and removes the log before it.
func statusUpdate(durable schemas.LSN, ask bool, now time.Time) pglogrepl.StandbyStatusUpdate {
	at := pglogrepl.LSN(durable)
	return pglogrepl.StandbyStatusUpdate{
		WALWritePosition: at, WALFlushPosition: at, WALApplyPosition: at, ClientTime: now, ReplyRequested: ask,
	}
}

// statuses schedules the next status. Only the goroutine that owns the stream uses it.
type statuses struct {
	interval time.Duration

	sent     schemas.LSN // position of the last status
	sentAt   time.Time   // zero before the first
	answerAt time.Time   // when to answer a request that came too soon after the last answer; zero if there is none
	askedAt  time.Time   // the last request
}

// due returns when to send the next status, given its position. A changed position is sent sooner: the executor's safety rule and the
// server's disk wait for it.
func (t *statuses) due(position schemas.LSN) time.Time {
	wait := t.interval
	if position != t.sent {
		wait /= 10
	}
	at := t.sentAt.Add(wait)
	if !t.answerAt.IsZero() && t.answerAt.Before(at) {
		return t.answerAt
	}
	return at
}

// asked records a request for an answer and schedules the answer. It reports whether the server shows that it shuts down.
func (t *statuses) asked(now time.Time) (stopping bool) {
	stopping = !t.askedAt.IsZero() && now.Sub(t.askedAt) <= askedTwiceWithin
	t.askedAt = now
	if t.answerAt.IsZero() {
		t.answerAt = t.sentAt.Add(answerPause)
	}
	return stopping
}

// report returns the position to tell the server: the confirmed one, but never beyond what this server has sent. A position from before a
// crash of the server, which its log no longer reaches, would skip what it writes next.
func (s *Stream) report() schemas.LSN { return min(schemas.LSN(s.confirmed.Load()), s.sent) }

// tickAt returns when to call tick again: after a tenth of the interval at the latest, because Confirm may advance the position from
// another goroutine at any time.
func (s *Stream) tickAt(now time.Time) time.Time {
	return earlier(s.status.due(s.report()), now.Add(s.status.interval/10))
}

// tick sends a status if one is due, or if an answer is needed.
func (s *Stream) tick(now time.Time) error {
	if now.Before(s.status.due(s.report())) && !s.wantsAnswer(now) {
		return nil
	}
	return s.sendStatus(now)
}

func (s *Stream) sendStatus(now time.Time) error {
	position := s.report()
	ask := s.wantsAnswer(now)
	if ask {
		s.asking.Store(false)
		s.liveness.askedAt = now
	}
	err := s.wire.SetWriteDeadline(time.Now().Add(writeTimeout)) // pglogrepl ignores the context
	if err == nil {
		err = pglogrepl.SendStandbyStatusUpdate(context.Background(), s.conn, statusUpdate(position, ask, now))
	}
	if err != nil {
		return s.fail(fmt.Errorf("send status: %w", err))
	}
	s.status.sent, s.status.sentAt, s.status.answerAt = position, now, time.Time{}
	return nil
}
