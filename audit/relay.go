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

// relay carries transactions from the stream to a sink. It lives as long as the sink and remembers what it has handed to it, so that a
// stream which breaks can be taken up again. Its methods belong to one goroutine.
//
// The order of durability, for each transaction:
//
//	events appended ─▶ acknowledged ─▶ its records appended to the log ─▶ acknowledged ─▶ its end confirmed to the slot
//
// Transactions follow one another through these steps without waiting for each other; the queue holds them.
type relay struct {
	route     *evidence.Route // in force
	next      *evidence.Route // that follows it; nil for none
	hashKey   schemas.Key     // of the one that follows, or of the one in force if none does
	sink      Sink
	assembler *evidence.Assembler
	router    *evidence.Router
	writer    *evidence.LogWriter
	rows      *rows.Committer // nil: nothing is committed to
	rowsKeys  schemas.EpochKeys
	proofs    string // the topic of the proof store
	metrics   *Metrics
	log       *slog.Logger
	now       func() time.Time
	alarm     func(ctx context.Context, reason string) error // nil: none

	stream  *replication.Stream // nil before attach and after detach
	copied  *history.Catalog    // of the database, where the stream is of a copy of the slot; nil: it is of the slot
	unwatch func()              // ends the wakes of the stream

	// What is in the topics or on its way there.
	found       *history.Topics                   // at the start
	tails       map[string][]replication.Position // by topic and partition: the last event; zero for none
	logged      evidence.LogPosition              // of the newest record that the log had at the start
	last        evidence.LogPosition              // of the newest record that is in the log or in the queue
	reach       evidence.Reach                    // of the last transaction or coverage whose records are in the queue, all of them
	queue       queue
	hurried     bool // no record waits for company: somebody waits for a position, or the server stops
	ends        ends
	checkpoints checkpoints
	showing     showing
	events      evidence.Reach // above this there is no event in the topics
	lastEvent   uint64         // the mark of the last event
	lastMark    uint64         // of the last event or record

	// The transaction that is being read.
	tx         *replication.Tx
	passed     bool // it is recorded; its changes are dropped unread
	stale      bool // the server may go on as if partitions were those of before: see reopenStale
	heartbeats *heartbeatMonitor
	noRow      map[uint32]bool // relations whose events name no row, as was warned of

	ancestry replication.Ancestry // of the server that is read
	process  string               // this one
	coverage coverage

	boundary func(step, func() bool) // tests end the process there; nil in the product
}

// step is a point between two effects of a transaction, at which a crash leaves something else than at the next.
type step struct {
	before string          // what comes next: event, record, confirm; ends: the fence that says them
	record *evidence.Entry // that is appended next, or that was acknowledged last; nil before an event and ends
}

func newRelay(
	route *evidence.Route, config *Config, sink Sink, start *history.StartingPoint, checked *history.Topics, metrics *Metrics, log *slog.Logger,
) *relay {
	r := &relay{
		route: route, next: checked.Next, hashKey: config.HashKey, found: checked, sink: sink, metrics: metrics, log: log, now: time.Now,
		assembler: evidence.NewAssembler(route.Source, config.Keys, evidence.Standing{
			Last: start.Last, Tables: start.Tables, Origin: start.Origin, Replaced: start.Replaced, Tail: checked.LastOfAll(),
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

// run carries on until ctx ends, the stream breaks, the sink fails, or the position until (if there is one) is
// confirmed. It begins with first, the last message that the history check read, if there is one.
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

// partitionsSeen is the first version of the server that checks a table again which is attached or detached while it streams. Before,
// it goes on as it began: it sends nothing of a table that it has met before it was attached, and all of one that was detached.
const partitionsSeen = 150000

// reopenStale ends the stream when all that was read is confirmed, and nothing after it: the next one sends what comes after the
// heartbeat that found other partitions, and sends it as they are.
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

// askEvery is how often a server is asked how far it has read while somebody waits for it: by itself an idle one may not
// say so for as long as half of wal_sender_timeout.
const askEvery = 500 * time.Millisecond

// wakeBy has timer wake the stream when a coverage record is due, and returns that time. While there is a position to be
// reached it asks the server how far it has read, and has the stream woken in time to ask again.
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

// attach makes stream the one that is read, and confirmed to.
func (r *relay) attach(stream *replication.Stream) {
	r.stream, r.tx, r.stale, r.hurried = stream, nil, false, false
	r.coverage.begin(r.reach, r.now())
	r.metrics.serverLag.restart(r.reach.LSN)
	r.unwatch = wakeOn(stream, r.sink.Progress())
	r.showing.attach(stream)
	// What the log has may never have come to be confirmed, or the server may have forgotten it in a crash.
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

// in has the stream woken after a pause, unless that is so already. Without a stream somebody else waits.
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

// wakeOn wakes the stream whenever progress has something, until stop is called.
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

// wait waits for the sink to get further.
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

// keepalive learns how far the server has read. Between transactions everything below is known; within one it is not.
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

// timelineOf is the timeline on which a position of the server that is read falls.
func (r *relay) timelineOf(at schemas.LSN) schemas.Timeline {
	id := r.stream.Identity()
	return id.TimelineOf(at)
}

// finished says whether everything up to the position has been read, recorded and confirmed, and nothing is on its way: the fence
// after a gap, for one. Without it the next start tells the same loss again.
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

// waiting keeps the time since when something has been waiting.
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
