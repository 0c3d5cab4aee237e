package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"lapse/audit/evidence"
	"lapse/audit/history"
	"lapse/schemas"
)

// Copied is the result of Copy.
type Copied struct {
	Events  int         // that were written
	From    schemas.LSN // the slot's position
	Reached schemas.LSN // everything that was committed up to here is written
}

// Copy writes events into a file, in the order of the write-ahead log, from a temporary copy of the slot: slot, topics and database stay as they
// are, whether or not an auditor runs. Each line is the value of the event's records, byte for byte; an event that goes to every partition is
// written once. The file has no log, so it lacks what only the log knows: rewinds, and a gap from before the slot's position.
//
// With Config.Once it ends when everything up to that end is written; it also ends when ctx ends. Neither is an error, and what it has written is
// durable then. Any other end is an error. It does not write again what is in the file already.
func (a *Auditor) Copy(ctx context.Context, to *EventFile) (copied Copied, err error) {
	a.config.Stream.Copy = true
	opened, err := a.openStream(ctx)
	if err != nil {
		return copied, err
	}
	s := opened.stream
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = s.Close(closing) // the slot is gone with it
	}()
	if opened.catalog.Newest().Number == 0 {
		return copied, errors.New("this database has no history on record: run lapse init")
	}
	copied.From = s.StartedAt()
	r := a.copyingRelay(opened, to)
	if err := to.begin(r.route, r.reach); err != nil {
		return copied, err
	}
	var until schemas.LSN
	if a.config.asks.end != nil {
		if until, err = a.config.asks.end(ctx); err != nil {
			return copied, fmt.Errorf("ask for the current end of the WAL: %w", err)
		}
	}
	r.attach(s)
	err = r.run(ctx, s, nil, until)
	r.detach()
	if ctx.Err() != nil || errors.Is(err, errReached) {
		err = nil
	}
	synced := to.sync()
	if synced == nil {
		copied.Reached = r.coverage.upTo.LSN
		synced = to.reached(opened.reach(copied.Reached))
	}
	if err == nil {
		err = synced
	}
	copied.Events = int(to.events)
	return copied, err
}

// copyingRelay is a relay that starts at the slot's position. It reports no findings, which is the auditor's job.
func (a *Auditor) copyingRelay(o *openedStream, to *EventFile) *relay {
	route, from := a.route(o.stream.Identity()), o.reach(o.stream.StartedAt())
	start := &history.StartingPoint{
		History: o.catalog.Newest(), Reach: from, Last: evidence.LastBeat{Reach: from}, Origin: from, Tables: o.catalog.CoveredAt(from.LSN),
	}
	r := newRelay(route, &a.config, to, start, history.NoTopics(route), a.metrics, slog.New(slog.DiscardHandler))
	r.rows = nil // a file has no log
	r.copied, r.alarm, r.heartbeats, r.boundary = o.catalog, nil, &a.heartbeats, a.boundary
	return r
}

// reach returns a position with its history and timeline.
func (o *openedStream) reach(at schemas.LSN) evidence.Reach {
	id := o.stream.Identity()
	return evidence.Reach{History: o.catalog.HistoryAt(at), Timeline: id.TimelineOf(at), LSN: at}
}
