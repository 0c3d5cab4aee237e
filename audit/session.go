package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"lapse/audit/evidence"
	"lapse/audit/history"
	"lapse/audit/tree"
	"lapse/replication"
)

// session is the work from one take-over of the topics to the next: a publisher, its relay, and the open stream.
type session struct {
	auditor   *Auditor
	route     *evidence.Route
	stream    *replication.Stream // nil once it is closed
	publisher publisher
	relay     *relay
}

// openPublisher takes the topics over, and answers the server meanwhile, so that a server that shuts down does not wait for brokers that do not
// answer.
func (s *session) openPublisher(ctx context.Context, checked *history.Topics) error {
	s.auditor.setNotReady("taking the topics over")
	inner, end := s.auditor.probeBeside(ctx, s.stream)
	err := end(s.stream.During(inner, func(ctx context.Context) (err error) {
		s.publisher, err = s.takeTopics(ctx, checked)
		return err
	}))
	if err != nil {
		return err
	}
	s.auditor.publisher.Store(&s.publisher)
	return nil
}

// startRelay makes the relay of this session.
func (s *session) startRelay(start *history.StartingPoint, checked *history.Topics, logTree *tree.Reader) {
	a := s.auditor
	s.relay = newRelay(s.route, &a.config, s.publisher, start, checked, a.metrics, a.log)
	s.relay.checkpoints.tree, s.relay.checkpoints.signed = logTree.Tree, logTree.Signed
	a.metrics.setUnsigned(time.Time{}) // what the former session left is signed at once
	id := s.stream.Identity()
	s.relay.ancestry, s.relay.process, s.relay.heartbeats, s.relay.boundary = id.Ancestry, a.process, &a.heartbeats, a.boundary
	s.relay.coverage.every = a.coverEvery
	a.heartbeats.reset()
	if len(start.Replaced) > 0 {
		a.log.Warn("topics lack what was acknowledged in them: they were deleted, or the brokers have lost their end; the next heartbeat "+
			"writes a gap", "topics", start.Replaced)
	}
	s.stream.SetHistory(start.History.Number)
	s.showLog(logTree)
	s.relay.attach(s.stream)
	a.server.Store(&Server{History: start.History.Number, Timeline: id.Timeline, ServerStart: id.ServerStart})
	if a.config.asks.end != nil && a.until == 0 {
		return // resolveUntil writes the first heartbeat itself
	}
	select {
	case a.streamOpened <- struct{}{}:
	default:
	}
}

// resolveUntil determines once where to stop. It writes a heartbeat first, so that a run up to the current end leaves a recent one in the
// database and in the log. It answers the server while the heartbeat is written.
func (s *session) resolveUntil(ctx context.Context) error {
	a := s.auditor
	if a.config.asks.end == nil || a.until != 0 {
		return nil
	}
	if server := a.server.Load(); a.config.asks.beat != nil && server != nil {
		err := s.stream.During(ctx, func(ctx context.Context) error {
			a.writeHeartbeat(ctx, server)
			return nil
		})
		if err != nil {
			return err
		}
	}
	until, err := a.config.asks.end(ctx)
	if err != nil {
		return fmt.Errorf("ask for the current end of the WAL: %w", err)
	}
	a.until = until
	return nil
}

// run publishes until the stream breaks, the publisher fails, or ctx ends. A broken stream loses nothing: run flushes what is acknowledged
// by then. The next session makes the history check again, since the server may be another one.
func (s *session) run(ctx context.Context, start *history.StartingPoint) error {
	a := s.auditor
	a.notReady.Store(nil)
	a.metrics.bent.Set(0)
	a.compared.Store(true)
	a.log.Info("audit streaming", "reached", s.relay.reach.String())
	inner, end := a.probeBeside(ctx, s.stream)
	err := end(s.relay.run(inner, s.stream, start.FirstMessage, a.until))
	a.setNotReady(notReadyText(err))
	if ctx.Err() != nil {
		s.relay.drain(ctx)
		return err
	}
	if gradeOf(err) != reopen {
		return err
	}
	a.metrics.setWaiting(time.Now())
	a.logInterruption(err) // before awaitKafka, which lasts as long as Kafka does not answer
	s.closeStream(ctx)
	if failed := s.relay.awaitKafka(ctx); failed != nil {
		return failed
	}
	return interruption{err}
}

// orFenced returns the publisher's error if that is final and err is not: a stream may break just when another auditor takes over, and only the
// publisher learns of that.
func (s *session) orFenced(err error) error {
	if err == nil || s.publisher == nil || gradeOf(err) == stop {
		return err
	}
	if failed := s.publisher.Err(); failed != nil && gradeOf(failed) == stop {
		return fmt.Errorf("publish: %w", failed)
	}
	return err
}

// notReadyText is the text of Ready until the next stream is open.
func notReadyText(err error) string {
	var alarm *alarmError
	if errors.As(err, &alarm) {
		return alarm.Error()
	}
	if errors.Is(err, replication.ErrSynchronous) {
		return err.Error()
	}
	return "connecting to PostgreSQL"
}

// close closes stream and publisher, within closeTimeout each. The slot sends again what is not confirmed by then.
func (s *session) close(ctx context.Context) {
	s.closeStream(ctx)
	if s.publisher == nil {
		return
	}
	s.auditor.publisher.Store(nil)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := s.publisher.Close(ctx); err != nil {
		s.auditor.log.Warn("publisher not closed in time", "error", err)
	}
}

// closeStream confirms the position to the server for the last time. If the server does not get it, the slot sends some transactions again, and they
// are dropped.
func (s *session) closeStream(ctx context.Context) {
	if s.stream == nil {
		return
	}
	s.auditor.server.Store(nil) // no heartbeat may say that this process audits
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := s.stream.Close(ctx); err != nil {
		s.auditor.log.Info("stream not closed in order", "error", err)
	}
	s.stream = nil
	if s.relay != nil {
		s.relay.detach()
	}
}
