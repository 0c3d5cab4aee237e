package audit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/audit/evidence"
	"lapse/audit/kafka"
	"lapse/replication"
	"lapse/schemas"
)

// routeVersion is that of the one route a log has so far.
const routeVersion = 1

// route is the route of this configuration for a database.
func (a *Auditor) route(id replication.Identity) *evidence.Route {
	c := &a.config
	return &evidence.Route{
		Version: routeVersion,
		Source: evidence.Source{
			SystemIdentifier: id.SystemIdentifier, DatabaseOID: id.DatabaseOID, Database: id.Database, Encoding: id.Encoding,
			Slot: c.Stream.Slot,
		},
		System: evidence.Topic{Name: c.System, Partitions: int32(c.Partitions)},
		User:   evidence.Topic{Name: c.User, Partitions: int32(c.Partitions)},
		Log:    evidence.Topic{Name: c.Log, Partitions: 1},

		Format:  evidence.FormatSpanner,
		HashKey: schemas.Fingerprint(c.HashKey),
	}
}

// takeOver is one life of a publisher. Its order is what makes it safe:
//
//  1. the slot is ours: whoever had it on this server has lost it
//  2. the check of Histories: this database is the one that the log is of, or a person has said so
//  3. producer epoch and fences: whoever published before cannot any more, in any partition
//  4. the tails, below the fences: they are final, and those that were judged
//  5. transactions, from where the tails end
func (a *Auditor) takeOver(ctx context.Context) error {
	opened, err := a.open(ctx)
	if err != nil {
		return err
	}
	life := &life{auditor: a, stream: opened.stream}
	defer life.end(ctx)
	start, judged, err := life.check(ctx, opened)
	if err != nil {
		return err
	}
	if err := life.openPublisher(ctx); err != nil {
		return err
	}
	if !judged.equals(readFenced(life.publisher, life.route)) {
		return fmt.Errorf("take the topics over: %w", errMoved)
	}
	life.begin(start, judged)
	if err := life.relay.writeStart(ctx, start, &a.config); err != nil {
		return err
	}
	if err := life.askUntil(ctx); err != nil {
		return err
	}
	return life.carry(ctx, start)
}

// check looks whether the database is the one that the log is of. Where it had to read beyond the log's end for that, the
// stream is opened again: what was read comes again.
func (l *life) check(ctx context.Context, o *opened) (*startingPoint, *past, error) {
	a := l.auditor
	l.route = a.route(o.stream.Identity())
	client, err := kafka.NewClient(a.clientConfig())
	if err != nil {
		return nil, nil, err
	}
	defer client.Close()
	inner, end := a.attend(ctx, o.stream)
	j, err := a.judge(inner, client, o, false)
	if err = end(err); err != nil {
		return nil, nil, err
	}
	l.route = j.route
	if !j.start.beyond {
		return j.start, j.past, nil
	}
	l.closeStream(ctx)
	again, err := a.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	l.stream = again.stream
	if !again.same(o) {
		return nil, nil, fmt.Errorf("open the stream again: %w", errMoved)
	}
	return j.start, j.past, nil
}

// judge reads the topics and makes the check. The judge is returned with its error, as far as it came.
func (a *Auditor) judge(ctx context.Context, client *kafka.Client, o *opened, thorough bool) (*judge, error) {
	a.stand("connecting to Kafka")
	j := &judge{
		auditor: a, client: client, stream: o.stream, identity: o.stream.Identity(), database: o.database,
		route: a.route(o.stream.Identity()), thorough: thorough,
	}
	err := o.stream.During(ctx, func(ctx context.Context) (err error) {
		j.past, err = readPast(ctx, client, j.route, o.database.SlotStart == o.stream.StartedAt())
		return err
	})
	if err != nil {
		return j, err
	}
	a.stand("comparing the log with the database")
	return j, j.run(ctx)
}

// opened is a stream, and what the server said of its past when it was opened.
type opened struct {
	stream   *replication.Stream
	database *Database
}

// same says whether nothing has changed between two openings.
func (o *opened) same(other *opened) bool {
	a, b := o.stream.Identity(), other.stream.Identity()
	return a.SystemIdentifier == b.SystemIdentifier && a.DatabaseOID == b.DatabaseOID && a.Timeline == b.Timeline &&
		a.ServerStart.Equal(b.ServerStart) && o.stream.StartedAt() == other.stream.StartedAt() &&
		o.database.Newest() == other.database.Newest()
}

// open opens the stream. A slot in use is waited for: the other auditor may stop, or be dead without the server's having
// noticed.
func (a *Auditor) open(ctx context.Context) (*opened, error) {
	a.stand("connecting to PostgreSQL")
	opening, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	o := &opened{}
	config := a.config.Stream
	config.Inspect = func(ctx context.Context, conn *pgx.Conn, _ *replication.Identity) (err error) {
		o.database, err = readDatabase(ctx, conn)
		return err
	}
	var err error
	if o.stream, err = replication.Open(opening, config); err != nil {
		return nil, err
	}
	return o, nil
}

// askUntil asks where to stop. A heartbeat comes before, so that one run up to the present end leaves a fresh one behind, in
// the database and in the log. The server is answered while it is written.
func (l *life) askUntil(ctx context.Context) error {
	a := l.auditor
	if a.config.Until == nil || a.until != 0 {
		return nil
	}
	if place := a.place.Load(); a.config.Beat != nil && place != nil {
		err := l.stream.During(ctx, func(ctx context.Context) error {
			a.beat(ctx, place)
			return nil
		})
		if err != nil {
			return err
		}
	}
	until, err := a.config.Until(ctx)
	if err != nil {
		return fmt.Errorf("ask for the present end of the WAL: %w", err)
	}
	a.until = until
	return nil
}

// clientConfig is how to reach the brokers, for reading.
func (a *Auditor) clientConfig() kafka.Config {
	cfg := a.config.Kafka
	if cfg.Logger == nil {
		cfg.Logger = a.log
	}
	cfg.Topics = []kafka.Topic{{Name: a.config.System}, {Name: a.config.User}, {Name: a.config.Log}}
	return cfg
}

// life is what lives as long as a publisher does.
type life struct {
	auditor   *Auditor
	route     *evidence.Route
	stream    *replication.Stream // nil between two
	publisher *kafka.Publisher
	relay     *relay
}

// openPublisher takes the topics over, and answers the server meanwhile. A server that stops is not kept waiting for
// brokers that do not answer.
func (l *life) openPublisher(ctx context.Context) error {
	l.auditor.stand("connecting to Kafka")
	inner, end := l.auditor.attend(ctx, l.stream)
	err := end(l.stream.During(inner, func(ctx context.Context) (err error) {
		l.publisher, err = kafka.Open(ctx, l.publisherConfig())
		return err
	}))
	if err != nil {
		return err
	}
	l.auditor.publisher.Store(l.publisher)
	return nil
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
	cfg.Ours = isOurs(l.route)
	cfg.FenceHeaders = kafkaHeaders(nil, evidence.FenceHeaders(source, l.stream.Identity().Timeline, a.process))
	cfg.Topics = nil
	for _, t := range []evidence.Topic{l.route.System, l.route.User, l.route.Log} {
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

// begin makes the relay of this life.
func (l *life) begin(start *startingPoint, judged *past) {
	a := l.auditor
	l.relay = newRelay(l.route, &a.config, l.publisher, start, judged, a.metrics, a.log)
	id := l.stream.Identity()
	l.relay.ancestry, l.relay.process, l.relay.pulse, l.relay.boundary = id.Ancestry, a.process, &a.pulse, a.boundary
	a.pulse.reset()
	l.stream.SetHistory(start.history.Number)
	l.relay.attach(l.stream)
	a.place.Store(&Place{History: start.history.Number, Timeline: id.Timeline, ServerStart: id.ServerStart})
	if a.config.Until != nil && a.until == 0 {
		return // askUntil writes the first heartbeat itself
	}
	select {
	case a.streaming <- struct{}{}:
	default:
	}
}

// carry relays until the stream breaks, the publisher fails, or ctx ends. A stream that breaks loses nothing: what is
// acknowledged by then is settled, and the next life begins with the check again, since the server may be another one.
func (l *life) carry(ctx context.Context, start *startingPoint) error {
	a := l.auditor
	a.standing.Store(nil)
	a.metrics.bent.Set(0)
	a.log.Info("audit streaming", "reached", l.relay.reach.String())
	inner, end := a.attend(ctx, l.stream)
	err := end(l.relay.run(inner, l.stream, start.pending, a.until))
	a.place.Store(nil)
	a.stand(whyNot(err))
	if ctx.Err() != nil {
		l.relay.drain(ctx)
		return err
	}
	if gradeOf(err) != reopen {
		return err
	}
	a.metrics.behind(time.Now())
	a.log.Warn("stream interrupted; opening it again", "error", err)
	l.closeStream(ctx)
	if resting := l.relay.rest(ctx, 0); resting != nil {
		return resting
	}
	return err
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

// end closes what is open. Its own time is bounded: neither side is owed more than to be left.
func (l *life) end(ctx context.Context) {
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
		l.relay.detach()
	}
}
