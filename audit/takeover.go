package audit

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/audit/kafka"
	"lapse/replication"
)

// takeOver opens the stream, takes the topics over, and publishes until something breaks. The order of its steps makes it
// safe:
//
//  1. The slot is ours: whoever had it on this server has lost it.
//  2. The history check has passed: this database is the one that the log is of, or a person has said so.
//  3. The producer epoch and the fences are ours: whoever published before cannot publish in any partition.
//  4. The tails below the fences are final, and they are the ones that were checked.
//  5. Transactions are published from where the tails end.
func (a *Auditor) takeOver(ctx context.Context) (err error) {
	opened, err := a.openStream(ctx)
	if err != nil {
		return err
	}
	s := &session{auditor: a, stream: opened.stream}
	defer func() {
		err = s.orFenced(err)
		s.close(ctx)
	}()
	start, checked, err := s.checkHistory(ctx, opened)
	if err != nil {
		return err
	}
	if err := a.checkHashKey(checked, start.reach); err != nil {
		return err
	}
	if err := s.openPublisher(ctx, checked); err != nil {
		return err
	}
	if !checked.equals(readFenced(s.publisher, checked)) {
		return errMoved
	}
	s.startRelay(start, checked)
	if err := s.relay.writeStart(ctx, start, &a.config); err != nil {
		return err
	}
	if err := s.resolveUntil(ctx); err != nil {
		return err
	}
	return s.run(ctx, start)
}

// checkHistory checks that the database is the one that the log is of. If the check reads the stream beyond the log's end,
// the stream is opened again: the slot sends what was read once more.
func (s *session) checkHistory(ctx context.Context, o *openedStream) (*startingPoint, *topicState, error) {
	a := s.auditor
	client, err := kafka.NewClient(a.readerConfig())
	if err != nil {
		return nil, nil, err
	}
	defer client.Close()
	inner, end := a.probeBeside(ctx, o.stream)
	check, err := a.checkHistory(inner, client, o, false)
	if err = end(err); err != nil {
		return nil, nil, err
	}
	s.route = check.route
	if !check.start.readBeyond {
		return check.start, check.topics, nil
	}
	s.closeStream(ctx)
	again, err := a.openStream(ctx)
	if err != nil {
		return nil, nil, err
	}
	s.stream = again.stream
	if !again.sameServer(o) {
		return nil, nil, errServerChanged
	}
	return check.start, check.topics, nil
}

// checkHistory reads the topics and makes the history check. The check is returned with its error, as far as it came.
func (a *Auditor) checkHistory(ctx context.Context, client *kafka.Client, o *openedStream, findFork bool) (*historyCheck, error) {
	a.setNotReady("connecting to Kafka")
	check := &historyCheck{
		auditor: a, client: client, stream: o.stream, identity: o.stream.Identity(), catalog: o.catalog,
		route: a.route(o.stream.Identity()), findFork: findFork,
	}
	err := o.stream.During(ctx, func(ctx context.Context) (err error) {
		check.topics, err = readTopics(ctx, client, check.route, o.catalog.slotStart == o.stream.StartedAt())
		return err
	})
	if err != nil {
		return check, err
	}
	check.route = check.topics.route
	a.setNotReady("comparing the log with the database")
	err = check.run(ctx)
	if err == nil {
		check.start.tables = o.catalog.coveredUpTo(check.start.last.Beat)
	}
	return check, err
}

// openedStream is a stream, and what the catalog said when the stream was opened.
type openedStream struct {
	stream  *replication.Stream
	catalog *catalogState
}

// sameServer reports whether nothing has changed between two openings.
func (o *openedStream) sameServer(other *openedStream) bool {
	a, b := o.stream.Identity(), other.stream.Identity()
	return a.SystemIdentifier == b.SystemIdentifier && a.DatabaseOID == b.DatabaseOID && a.Timeline == b.Timeline &&
		a.ServerStart.Equal(b.ServerStart) && o.stream.StartedAt() == other.stream.StartedAt() &&
		o.catalog.newest() == other.catalog.newest()
}

// openStream opens the stream. It waits while the slot is in use: the other auditor may stop, or it is dead and the server
// has not noticed.
func (a *Auditor) openStream(ctx context.Context) (*openedStream, error) {
	if !a.standby.taken {
		a.setNotReady("connecting to PostgreSQL")
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	o := &openedStream{}
	config := a.config.Stream
	config.Inspect = func(ctx context.Context, conn *pgx.Conn, _ *replication.Identity) (err error) {
		if o.catalog, err = readCatalog(ctx, conn); err == nil {
			a.standby.saw(o.catalog.newestBeat(), time.Now())
		}
		return err
	}
	var err error
	if o.stream, err = replication.Open(ctx, config); err != nil {
		return nil, err
	}
	a.actsAgain()
	return o, nil
}
