package audit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"lapse/audit/kafka"
	"lapse/replication"
)

// routeVersion is that of the one route a log has so far.
const routeVersion = 1

// route is the route of this configuration for a database.
func (a *Auditor) route(id replication.Identity) *Route {
	c := &a.config
	return &Route{
		Version: routeVersion,
		Source: Source{
			SystemIdentifier: id.SystemIdentifier, DatabaseOID: id.DatabaseOID, Database: id.Database, Encoding: id.Encoding,
			Slot: c.Stream.Slot,
		},
		System: Topic{Name: c.System, Partitions: int32(c.Partitions)},
		User:   Topic{Name: c.User, Partitions: int32(c.Partitions)},
		Log:    Topic{Name: c.Log, Partitions: 1},

		HashKey: fingerprint(c.HashKey),
	}
}

// takeOver is one life of a publisher. Its order is what makes it safe:
//
//  1. the slot is ours: whoever had it has lost it
//  2. producer epoch and fences: whoever published before cannot any more, in any partition
//  3. the tails, below the fences: they are final
//  4. transactions, from where the tails end
func (a *Auditor) takeOver(ctx context.Context) error {
	stream, err := a.open(ctx)
	if err != nil {
		return err
	}
	life := &life{auditor: a, stream: stream, route: a.route(stream.Identity())}
	defer life.end(ctx)
	if err := life.openPublisher(ctx); err != nil {
		return err
	}
	start, err := survey(life.publisher, life.route, stream, a.config.SlotStart)
	if err != nil {
		return err
	}
	life.relay = newRelay(life.route, &a.config, life.publisher, start, a.metrics, a.log)
	life.relay.attach(stream)
	if err := life.relay.inscribe(ctx, start, &a.config); err != nil {
		return err
	}
	if err := a.askUntil(ctx); err != nil {
		return err
	}
	return life.carry(ctx)
}

// open opens the stream. A slot in use is waited for: the other auditor may stop, or be dead without the server's having
// noticed.
func (a *Auditor) open(ctx context.Context) (*replication.Stream, error) {
	a.stand("connecting to PostgreSQL")
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	stream, err := replication.Open(opening, a.config.Stream)
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	a.timeline.Store(uint32(stream.Identity().Timeline))
	select {
	case a.streaming <- struct{}{}:
	default:
	}
	return stream, nil
}

func (a *Auditor) askUntil(ctx context.Context) error {
	if a.config.Until == nil || a.until != 0 {
		return nil
	}
	until, err := a.config.Until(ctx)
	if err != nil {
		return fmt.Errorf("audit: ask for the present end of the WAL: %w", err)
	}
	a.until = until
	return nil
}

// life is what lives as long as a publisher does.
type life struct {
	auditor   *Auditor
	route     *Route
	stream    *replication.Stream // nil between two
	publisher *kafka.Publisher
	relay     *relay
}

// openPublisher takes the topics over, and answers the server meanwhile. A server that stops is not kept waiting for
// brokers that do not answer.
func (l *life) openPublisher(ctx context.Context) error {
	l.auditor.stand("connecting to Kafka")
	opening, cancel := context.WithCancel(ctx)
	defer cancel()
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.publisher, err = kafka.Open(opening, l.publisherConfig())
	}()
	inner, end := l.auditor.attend(ctx, l.stream)
	if broken := end(answer(inner, l.stream, done)); broken != nil {
		cancel()
		<-done
		return broken
	}
	<-done
	if err != nil {
		return fmt.Errorf("audit: %w", err)
	}
	l.auditor.publisher.Store(l.publisher)
	return nil
}

// answer answers the server until done.
func answer(ctx context.Context, stream *replication.Stream, done <-chan struct{}) error {
	var press pressing
	began := time.Now()
	for {
		err := stream.Wait(ctx, done)
		select {
		case <-done:
			return nil
		default:
		}
		switch now := time.Now(); {
		case errors.Is(err, replication.ErrPressing):
			press.felt(now)
			if err := press.bear(now, now.Sub(began)); err != nil {
				return err
			}
		case err != nil:
			return fmt.Errorf("audit: %w", err)
		}
	}
}

// publisherConfig completes the configuration. The transactional id is the database's and the slot's: a stray auditor of
// another database with the same topics is refused when it reads the log, and has fenced nobody until then.
func (l *life) publisherConfig() kafka.Config {
	a, source := l.auditor, &l.route.Source
	cfg := a.config.Kafka
	cfg.TransactionalID = fmt.Sprintf("lapse-%d-%d-%s", source.SystemIdentifier, source.DatabaseOID, source.Slot)
	cfg.Metrics = a.metrics.kafka
	if cfg.Logger == nil {
		cfg.Logger = a.log
	}
	cfg.FenceHeaders = []kafka.Header{
		{Key: headerSystem, Value: appendUint(nil, source.SystemIdentifier)},
		{Key: headerDB, Value: appendUint(nil, uint64(source.DatabaseOID))},
		{Key: headerTLI, Value: strconv.AppendUint(nil, uint64(l.stream.Identity().Timeline), 10)},
		{Key: headerSchema, Value: appendUint(nil, EventSchema)},
	}
	cfg.Topics = nil
	for _, t := range []Topic{l.route.System, l.route.User, l.route.Log} {
		topic := kafka.Topic{
			Name: t.Name, Partitions: int(t.Partitions), Replication: a.config.Replication, Create: a.config.Create,
			Configs: map[string]string{},
		}
		if topic.Replication >= 3 {
			topic.Configs["min.insync.replicas"] = "2" // an acknowledged record outlives any one broker
		}
		if t == l.route.Log {
			topic.Forever = true
			topic.Configs["cleanup.policy"], topic.Configs["retention.ms"], topic.Configs["retention.bytes"] = "delete", "-1", "-1"
		}
		cfg.Topics = append(cfg.Topics, topic)
	}
	return cfg
}

// carry relays from one stream after another, as long as the publisher works. A stream that breaks loses nothing: the
// slot sends again what was not confirmed, and the relay remembers what of it is on its way.
func (l *life) carry(ctx context.Context) error {
	a, tries := l.auditor, attempts{}
	var last error
	for {
		if l.stream != nil {
			tries.begin()
			a.standing.Store(nil)
			a.log.Info("audit streaming", "reached", l.relay.reach.LSN.String(), "timeline", uint32(l.relay.reach.Timeline))
			inner, end := a.attend(ctx, l.stream)
			err := end(l.relay.run(inner, l.stream, a.until))
			a.stand(whyNot(err))
			if ctx.Err() != nil {
				l.relay.drain(ctx)
			}
			if ctx.Err() != nil || gradeOf(err) != reopen {
				return err
			}
			a.metrics.behind(time.Now())
			a.log.Warn("stream interrupted; opening it again", "error", err)
			l.closeStream(ctx)
			last = err
		}
		if err := l.relay.rest(ctx, a.pauseAfter(last, tries.next())); err != nil {
			return err
		}
		if last = l.reopen(ctx); last != nil && gradeOf(last) != reopen {
			return last
		} else if last != nil {
			a.stand(whyNot(last))
			a.log.Warn("stream not opened; trying again", "error", last)
		}
	}
}

// whyNot is what Ready says between two streams.
func whyNot(err error) string {
	var alarm *alarmError
	if errors.As(err, &alarm) {
		return alarm.Error()
	}
	if errors.Is(err, replication.ErrSynchronous) {
		return err.Error()
	}
	return "connecting to PostgreSQL"
}

// reopen opens the stream again, and looks whether it is still the one that the relay remembers.
func (l *life) reopen(ctx context.Context) error {
	stream, err := l.auditor.open(ctx)
	if err != nil {
		return err
	}
	l.stream = stream
	id, source := stream.Identity(), &l.route.Source
	if id.SystemIdentifier != source.SystemIdentifier || id.DatabaseOID != source.DatabaseOID {
		return refuse(ErrForeignTopic, "the server was database %d of system %d and is now %d of %d",
			"start again with topics of this database (topics)",
			source.DatabaseOID, source.SystemIdentifier, id.DatabaseOID, id.SystemIdentifier)
	}
	if l.relay.reach.LSN < stream.StartedAt() {
		return refuse(ErrLogBehind, "the log reaches %s, the slot stands at %s",
			"somebody else has moved or remade the slot; what was deleted in between is in no log",
			l.relay.reach.LSN, stream.StartedAt())
	}
	return nil
}

// end closes what is open. Its own time is bounded: neither side is owed more than to be left.
func (l *life) end(ctx context.Context) {
	if l.relay != nil {
		l.relay.bell.silence()
	}
	l.closeStream(ctx)
	if l.publisher == nil {
		return
	}
	l.auditor.publisher.Store(nil)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := l.publisher.Close(ctx); err != nil {
		l.auditor.log.Warn("publisher not closed in time", "error", err)
	}
}

// closeStream tells the server the confirmed position for the last time. What does not reach it is sent again and dropped.
func (l *life) closeStream(ctx context.Context) {
	if l.stream == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	if err := l.stream.Close(ctx); err != nil {
		l.auditor.log.Info("stream not closed in order", "error", err)
	}
	l.stream = nil
	if l.relay != nil {
		l.relay.stream = nil
	}
}
