package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"lapse/audit/evidence"
	"lapse/audit/history"
	"lapse/audit/rows"
	"lapse/replication"
	"lapse/schemas"
)

// relay carries transactions from the stream to a sink. It lives as long as the sink and remembers what it has handed over, so that it can continue
// with the next stream if one breaks. Its methods belong to one goroutine.
//
// The order of durability, for each transaction:
//
//	events appended ─▶ acknowledged ─▶ its records appended to the log ─▶ acknowledged ─▶ its end confirmed to the slot
//
// Transactions pass through these steps one after the other without waiting for each other; the queue holds them.
type relay struct {
	route     *evidence.Route // in force
	next      *evidence.Route // the route that follows; nil for none
	hashKey   schemas.Key     // of the route that follows, or else of the one in force
	sink      Sink
	assembler *evidence.Assembler
	router    *evidence.Router
	writer    *evidence.LogWriter
	rows      *rows.Committer // nil: no commitments to rows
	rowsKeys  schemas.EpochKeys
	proofs    string // the topic of the proof store
	metrics   *Metrics
	log       *slog.Logger
	now       func() time.Time
	alarm     func(ctx context.Context, reason string) error // nil: none

	stream  *replication.Stream // nil before attach and after detach
	copied  *history.Catalog    // of the database, if the stream is of a copy of the slot; nil: it is of the slot itself
	unwatch func()              // ends the wakes of the stream

	// What is in the topics, or on its way there.
	found       *history.Topics                   // at the start
	tails       map[string][]replication.Position // by topic and partition: the last event; zero for none
	logged      evidence.LogPosition              // of the newest record that the log had at the start
	last        evidence.LogPosition              // of the newest record that is in the log or in the queue
	reach       evidence.Reach                    // of the last transaction or coverage with all its records in the queue
	queue       queue
	hurried     bool // records do not wait for others: a position is waited for, or the server stops
	ends        ends
	checkpoints checkpoints
	showing     showing
	events      evidence.Reach // no event in the topics is above this
	lastEvent   uint64         // the mark of the last event
	lastMark    uint64         // of the last event or record

	// The transaction that is being read.
	tx         *replication.Tx
	passed     bool // it is recorded; its changes are dropped unread
	stale      bool // the server may not know of changed partitions yet: see reopenStale
	heartbeats *heartbeatMonitor
	noRow      map[uint32]bool // relations whose events identify no row, after the warning
	noRoot     schemas.Epoch   // the last month whose key was destroyed that a transaction named, after the warning

	ancestry replication.Ancestry // of the server that is read
	process  string               // this one
	coverage coverage

	boundary func(step, func() bool) // tests simulate a crash there; nil in the product
}

// step is a point between two effects of a transaction: a crash at each leaves something different.
type step struct {
	before string          // what comes next: event, record, confirm; ends: the fence with the ends
	record *evidence.Entry // the record that is appended next, or was last acknowledged; nil before an event and ends
}

func newRelay(
	route *evidence.Route, config *Config, sink Sink, start *history.StartingPoint, checked *history.Topics, metrics *Metrics, log *slog.Logger,
) *relay {
	r := &relay{
		route: route, next: checked.Next, hashKey: config.HashKey, found: checked, sink: sink, metrics: metrics, log: log, now: time.Now,
		assembler: evidence.NewAssembler(route.Source, config.Keys, evidence.Standing{
			Last: start.Last, Tables: start.Tables, Unsettled: start.Unsettled, Origin: start.Origin, Replaced: start.Replaced, Tail: checked.LastOfAll(),
		}),
		router: evidence.NewRouter(route, config.hashKeys().Of(route)),
		rows:   rows.NewCommitter(route, config.RowsKeys), rowsKeys: config.RowsKeys, proofs: config.Proofs,
		writer: evidence.NewLogWriter(route, config.hashKeys().Of(route), start.History.Nonce, cmp.Or(start.Named, start.Last.Beat)),
		tails:  checked.Positions(), logged: checked.Newest(), last: checked.Newest(), reach: start.Reach, noRow: map[uint32]bool{}, alarm: config.asks.alarm,
		ends: ends{owed: true, lost: start.Replaced}, events: evidence.ReachOf(checked.LastOfAll()), coverage: coverage{every: coverageEvery},
	}
	checked.ForgetRecords()
	return r
}

// run works until ctx ends, the stream breaks, the sink fails, or the position until (if set) is confirmed. It begins with first, the last message
// that the history check read, if there is one.
func (r *relay) run(ctx context.Context, stream *replication.Stream, first *replication.Message, until schemas.LSN) error {
	if first != nil {
		if first.Tx != nil {
			first.Tx.History = r.reach.History
		}
		if err := r.handle(ctx, first); err != nil {
			return err
		}
	}
	timer := time.AfterFunc(askEvery, stream.Wake)
	defer timer.Stop()
	due := r.wakeBy(timer, until)
	for {
		if until != 0 && r.finished(until) {
			return errReached
		}
		if r.stale {
			return r.reopenStale(ctx)
		}
		message, err := stream.Next(ctx)
		switch {
		case err == nil:
			if err := r.handle(ctx, message); err != nil {
				return err
			}
			if message.Kind != replication.KindChange && !r.coverage.due(r).Equal(due) {
				due = r.wakeBy(timer, until)
			}
		case errors.Is(err, replication.ErrWoken):
			if err := r.flush(); err != nil {
				return err
			}
			due = r.wakeBy(timer, until)
		case ctx.Err() != nil:
			return ctx.Err()
		default:
			return err
		}
	}
}

// partitionsSeen is the first server version whose stream notices that a table is attached or detached. Earlier ones continue as they
// began: they send nothing of a table that they had met before it was attached, and everything of one that was detached.
const partitionsSeen = 150000

// reopenStale ends the stream when everything that was read is confirmed, and nothing after it. The next stream begins after the heartbeat that
// found other partitions, and knows them.
func (r *relay) reopenStale(ctx context.Context) error {
	r.hurried = true
	for {
		if err := r.flush(); err != nil {
			return err
		}
		if r.queue.empty() {
			return errPartitions
		}
		if err := r.wait(ctx); err != nil {
			return err
		}
	}
}

// askEvery is how often a server is asked how far it has read while a position is waited for. An idle server may not say so by itself for half of
// wal_sender_timeout.
const askEvery = 500 * time.Millisecond

// wakeBy lets timer wake the stream when a coverage record is due, and returns that time. If a position is waited for, it asks the server how far it
// has read, and wakes the stream in time to ask again.
func (r *relay) wakeBy(timer *time.Timer, until schemas.LSN) (due time.Time) {
	due = r.coverage.due(r)
	at := due
	if until != 0 {
		r.stream.Ask()
		if soon := r.now().Add(askEvery); at.IsZero() || soon.Before(at) {
			at = soon
		}
	}
	if at.IsZero() {
		timer.Stop()
	} else {
		timer.Reset(at.Sub(r.now()))
	}
	return due
}

// attach starts reading a stream, and confirming to it.
func (r *relay) attach(stream *replication.Stream) {
	r.stream, r.tx, r.stale, r.hurried = stream, nil, false, false
	r.coverage.begin(r.reach, r.now())
	r.metrics.serverLag.restart(r.reach.LSN)
	r.unwatch = wakeOn(stream, r.sink.Progress())
	r.showing.attach(stream)
	// What the log has may never have been confirmed, or the server may have forgotten the confirmation in a crash.
	if id := stream.Identity(); r.queue.empty() && id.TimelineOf(r.reach.LSN) == r.reach.Timeline {
		stream.Confirm(r.reach.LSN)
	}
}

// detach ends what attach began.
func (r *relay) detach() {
	if r.stream != nil {
		r.unwatch()
		r.showing.unwatch()
		if r.ends.soon != nil {
			r.ends.soon.Stop()
		}
		r.checkpoints.soon.forget()
		r.queue.soon.forget()
		r.stream = nil
	}
}

// wake wakes the stream once.
type wake struct{ timer *time.Timer } // nil: it does not

// in wakes the stream after a pause, unless that is scheduled already. Without a stream, another waiter runs.
func (w *wake) in(pause time.Duration, stream *replication.Stream) {
	if w.timer == nil && stream != nil {
		w.timer = time.AfterFunc(pause, stream.Wake)
	}
}

func (w *wake) forget() {
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}

// wakeOn wakes the stream whenever progress receives, until stop is called.
func wakeOn(stream *replication.Stream, progress <-chan struct{}) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-progress:
				stream.Wake()
			case <-quit:
				return
			}
		}
	}()
	return func() {
		close(quit)
		<-done
	}
}

func (r *relay) handle(ctx context.Context, m *replication.Message) error {
	switch m.Kind {
	case replication.KindBegin:
		return r.begin(ctx, m.Tx)
	case replication.KindChange:
		return r.change(ctx, m.Change)
	case replication.KindCommit:
		return r.commit(ctx, m.Tx)
	case replication.KindKeepalive:
		return r.keepalive(m)
	default:
		return fmt.Errorf("a message of unknown kind %d: %w", m.Kind, errDisorder)
	}
}

func (r *relay) begin(ctx context.Context, tx *replication.Tx) error {
	if r.copied != nil {
		tx.History = r.copied.HistoryAt(tx.CommitLSN)
	}
	r.tx, r.passed = tx, r.reach.Passed(tx)
	if r.passed {
		return nil
	}
	if err := r.follow(ctx, evidence.Reach{History: tx.History, Timeline: tx.Timeline, LSN: tx.CommitLSN}); err != nil {
		return err
	}
	r.assembler.Begin(tx)
	r.beginRows()
	r.waiting()
	return nil
}

func (r *relay) change(ctx context.Context, change *replication.Change) error {
	if r.passed {
		return nil
	}
	r.assembler.Change(change)
	return r.publishEvents(ctx)
}

// wait waits for progress of the sink.
func (r *relay) wait(ctx context.Context) error {
	switch err := r.stream.Wait(ctx); {
	case errors.Is(err, replication.ErrWoken):
		return r.flush()
	case errors.Is(err, replication.ErrStopping):
		r.hurried = true
		if err := r.flush(); err != nil {
			return err
		}
		return r.stream.CheckStop(r.sink.Stalled())
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return err
	}
}

// keepalive learns how far the server has read. Between transactions, everything below was seen; within one, it was not.
func (r *relay) keepalive(m *replication.Message) error {
	if !m.Open {
		r.coverage.reached(evidence.Reach{History: r.reach.History, Timeline: r.timelineOf(m.WALEnd), LSN: m.WALEnd})
		r.metrics.serverLag.readUpTo(m.WALEnd)
		r.waiting()
	}
	if m.ReplyRequested && m.WALEnd > r.stream.Confirmed() {
		r.coverage.wanted = true
	}
	r.hurried = r.hurried || m.Stopping
	if err := r.flush(); err != nil {
		return err
	}
	if m.Stopping {
		return r.stream.CheckStop(r.sink.Stalled())
	}
	return nil
}

// timelineOf returns the timeline of a position on the server that is read.
func (r *relay) timelineOf(at schemas.LSN) schemas.Timeline {
	id := r.stream.Identity()
	return id.TimelineOf(at)
}

// finished reports whether everything up to the position was read, recorded and confirmed, and nothing is under way, such as the fence after a gap:
// without that fence the next start would report the same loss again.
func (r *relay) finished(until schemas.LSN) bool {
	if r.coverage.upTo.LSN >= until && r.reach.LSN < until && !r.coverage.wanted {
		r.coverage.wanted = true
		r.stream.Wake()
	}
	if !r.hurried && r.reach.LSN >= until {
		r.hurried = true
		r.stream.Wake()
	}
	return r.queue.empty() && r.sink.Acked() >= r.lastMark && r.reach.LSN >= until && r.stream.Confirmed() >= until && r.signed() &&
		r.shown(showOnceTimeout) && r.sink.Acked() >= r.lastMark
}

// waiting records since when something has been waiting.
func (r *relay) waiting() {
	switch oldest, queued := r.queue.oldest(); {
	case queued:
		r.metrics.setWaiting(oldest)
	case r.tx != nil:
		r.metrics.setWaiting(r.tx.CommitTime)
	default:
		r.metrics.setWaiting(time.Time{})
	}
}

// at tells a test which step the transaction has reached.
func (r *relay) at(s step) {
	if r.boundary != nil {
		r.boundary(s, func() bool { return r.sink.Acked() >= r.lastMark })
	}
}
