package audit

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"lapse/audit/history"
	"lapse/audit/store"
	"lapse/replication"
)

// takeOver opens the stream, takes the topics over, and publishes until something breaks. The order of its steps makes it safe:
//
//  1. The slot is ours: its former user on this server has lost it.
//  2. The history check has passed: the log belongs to this database, or a person has accepted it.
//  3. The producer epoch and the fences are ours: no earlier publisher can publish in any partition.
//  4. The tails below the fences are final, and they are the ones that were checked. The log ends with a leaf of its own tree.
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
	if err := checked.CheckHashKey(a.config.hashKeys(), start.Reach); err != nil {
		return err
	}
	if err := s.openPublisher(ctx, checked); err != nil {
		return err
	}
	if !checked.Equals(history.ReadFenced(s.publisher, checked)) {
		return errMoved
	}
	logTree, err := s.readTree(ctx, checked)
	if err != nil {
		return err
	}
	s.startRelay(start, checked, logTree)
	if err := s.relay.writeStart(ctx, start, &a.config); err != nil {
		return err
	}
	if err := s.resolveUntil(ctx); err != nil {
		return err
	}
	return s.run(ctx, start)
}

// checkHistory checks that the log belongs to this database. If the check reads the stream beyond the log's end, it opens the stream again,
// and the slot sends once more what was read.
func (s *session) checkHistory(ctx context.Context, o *openedStream) (*history.StartingPoint, *history.Topics, error) {
	a := s.auditor
	client, err := a.newClient()
	if err != nil {
		return nil, nil, err
	}
	defer client.Close()
	inner, end := a.probeBeside(ctx, o.stream)
	check, err := a.checkHistory(inner, client, o, false)
	if err = end(err); err != nil {
		return nil, nil, err
	}
	s.route = check.Route
	if !check.Start.ReadBeyond {
		return check.Start, check.Topics, nil
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
	return check.Start, check.Topics, nil
}

// checkHistory makes the history check. It returns the check even with an error, as far as it got.
func (a *Auditor) checkHistory(ctx context.Context, client store.Client, o *openedStream, findFork bool) (*history.Check, error) {
	check := &history.Check{
		Client: client, Stream: o.stream, Catalog: o.catalog, Route: a.route(o.stream.Identity()),
		Keys: a.config.Keys, HashKeys: a.config.hashKeys(), FailoverTolerance: a.config.FailoverTolerance,
		HeartbeatEvery: a.config.HeartbeatEvery, Process: a.process, Waits: a.setNotReady, Logger: a.log, FindFork: findFork,
	}
	return check, check.Run(ctx)
}

// openedStream is a stream, and what the catalog said when it was opened.
type openedStream struct {
	stream  *replication.Stream
	catalog *history.Catalog
}

// sameServer reports whether nothing has changed between two openings.
func (o *openedStream) sameServer(other *openedStream) bool {
	a, b := o.stream.Identity(), other.stream.Identity()
	return a.SystemIdentifier == b.SystemIdentifier && a.DatabaseOID == b.DatabaseOID && a.Timeline == b.Timeline &&
		a.ServerStart.Equal(b.ServerStart) && o.stream.StartedAt() == other.stream.StartedAt() &&
		o.catalog.Newest() == other.catalog.Newest()
}

// openStream opens the stream. It waits while the slot is in use: the other auditor may stop, or may be dead although the server has not noticed.
func (a *Auditor) openStream(ctx context.Context) (*openedStream, error) {
	if !a.standby.taken {
		a.setNotReady("connecting to PostgreSQL")
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	o := &openedStream{}
	config := a.config.Stream
	config.Received = func(bytes int) { a.metrics.bytes.Add(float64(bytes)) }
	config.Inspect = func(ctx context.Context, conn *pgx.Conn, _ *replication.Identity) (err error) {
		if o.catalog, err = history.ReadCatalog(ctx, conn); err == nil {
			a.standby.saw(o.catalog.NewestBeat(), time.Now())
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
