package audit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"lapse/audit/evidence"
	"lapse/audit/kafka"
	"lapse/replication"
	"lapse/schemas"
)

// relay carries transactions from the stream to the topics. It lives as long as its publisher and remembers what it has
// handed to it, so that a stream which breaks can be taken up again. Its methods belong to one goroutine.
//
// The order of durability, for each transaction:
//
//	events appended ─▶ acknowledged ─▶ its record appended to the log ─▶ acknowledged ─▶ its end confirmed to the slot
//
// Transactions follow one another through these steps without waiting for each other; the queue holds them.
type relay struct {
	route      *evidence.Route
	publisher  *kafka.Publisher
	classifier *evidence.Classifier
	router     *evidence.Router
	writer     *evidence.LogWriter
	metrics    *Metrics
	log        *slog.Logger
	now        func() time.Time
	alarm      func(ctx context.Context, reason string) error // nil: none

	stream  *replication.Stream // nil before attach and after detach
	unwatch func()              // ends the wakes of the stream

	// What is in the topics or on its way there.
	tails     map[string][]replication.Position // by topic and partition: the last event; zero for none
	reach     evidence.Reach                    // of the last record handed to the queue
	last      evidence.LastBeat                 // among the records handed to the queue
	origin    evidence.Reach                    // of the log
	replaced  []string                          // topics that have lost what was in them, which the next heartbeat says
	queue     queue
	headers   []kafka.Header // of the record that is handed over
	lastEvent uint64         // its mark

	// The transaction that is being read.
	tx         *replication.Tx
	passed     bool // it is recorded; its changes are dropped unread
	event      evidence.Event
	names      names
	heartbeats *heartbeatMonitor
	noRow      map[uint32]bool // relations whose events name no row, as was warned of

	ancestry replication.Ancestry // of the server that is read
	process  string               // this one
	coverage coverage
}

func newRelay(
	route *evidence.Route, config *Config, publisher *kafka.Publisher, start *startingPoint, judged *past, metrics *Metrics, log *slog.Logger,
) *relay {
	r := &relay{
		route: route, publisher: publisher, metrics: metrics, log: log, now: time.Now,
		classifier: evidence.NewClassifier(route.Source, config.Keys), router: evidence.NewRouter(route, config.HashKey),
		writer: evidence.NewLogWriter(route, start.history.nonce, cmp.Or(start.named, start.last.Beat)),
		tails:  judged.positions(), reach: start.reach, last: start.last, origin: start.origin, replaced: start.replaced,
		names: names{}, noRow: map[uint32]bool{}, alarm: config.Alarm,
	}
	return r
}

// run carries on until ctx ends, the stream breaks, the publisher fails, or the position until (if there is one) is
// confirmed. It begins with first, the message that the check of Histories read last, if it read one.
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
			if err := r.settle(); err != nil {
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
	r.stream, r.tx = stream, nil
	r.coverage.begin(r.reach, r.now())
	r.metrics.serverLag.restart(r.reach.LSN)
	r.unwatch = wakeOn(stream, r.publisher.Progress())
	// What the log has may never have come to be confirmed, or the server may have forgotten it in a crash.
	if id := stream.Identity(); r.queue.empty() && id.TimelineOf(r.reach.LSN) == r.reach.Timeline {
		stream.Confirm(r.reach.LSN)
	}
}

// detach ends what attach began.
func (r *relay) detach() {
	if r.stream != nil {
		r.unwatch()
		r.stream = nil
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
		r.begin(m.Tx)
		return nil
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

func (r *relay) begin(tx *replication.Tx) {
	r.tx, r.passed = tx, r.reach.Passed(tx)
	if !r.passed {
		r.classifier.Begin(tx)
		r.waiting()
	}
}

// change makes a change an event and hands it to the publisher, unless its partition has it already.
func (r *relay) change(ctx context.Context, change *replication.Change) error {
	if r.passed {
		return nil
	}
	finding := r.classifier.Classify(change)
	if finding.Op == evidence.None {
		return nil
	}
	table := r.names.of(change.Relation)
	r.event.Set(r.tx, change, finding, r.classifier.Claim(), table)
	r.warnOfNoRow(&r.event)
	routed := r.router.Route(&r.event)
	position := r.tx.Position(change.Ordinal)
	tails := r.tails[routed.Topic]
	for _, partition := range routed.Partitions {
		if position.Compare(tails[partition]) <= 0 {
			r.metrics.deduplicated.Inc()
			continue
		}
		mark, err := r.append(ctx, &evidence.Record{
			Topic: routed.Topic, Partition: partition, Key: routed.Key, Value: routed.Value, Headers: routed.Headers,
			Time: r.tx.CommitTime,
		})
		if err != nil {
			return err
		}
		tails[partition], r.lastEvent = position, mark
		r.metrics.byCause[finding.Cause][finding.Op].Inc()
	}
	return nil
}

// warnOfNoRow says once for each relation that its events name no rows.
func (r *relay) warnOfNoRow(e *evidence.Event) {
	if !e.Full && !e.Nameless || r.noRow[e.TableOID] {
		return
	}
	r.noRow[e.TableOID] = true
	why, fix := e.NamesNoRow()
	r.log.Warn("a table's events do not say which row was deleted", "table", e.Table, "reason", why, "fix", fix)
}

// append hands a record to the publisher, and waits while its buffer is full. The stream is not read meanwhile, so that
// the server holds what this process cannot; but it is answered.
func (r *relay) append(ctx context.Context, rec *evidence.Record) (uint64, error) {
	r.headers = kafkaHeaders(r.headers[:0], rec.Headers)
	out := kafkaRecord(rec, r.headers)
	for {
		mark, ok := r.publisher.Append(out)
		if ok {
			return mark, nil
		}
		if err := r.publisher.Err(); err != nil {
			return 0, fmt.Errorf("publish: %w", err)
		}
		if err := r.wait(ctx); err != nil {
			return 0, err
		}
	}
}

// wait waits for the publisher to get further.
func (r *relay) wait(ctx context.Context) error {
	switch err := r.stream.Wait(ctx); {
	case errors.Is(err, replication.ErrWoken):
		return r.settle()
	case errors.Is(err, replication.ErrStopping):
		return r.stream.CheckStop(r.publisher.Stalled())
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return err
	}
}

// commit ends a transaction. Its record waits in the queue until its events are acknowledged.
//
//	crash before the events are acknowledged    the slot sends it again; the partitions' tails say where to go on
//	crash before its record is acknowledged     the slot sends it again; every event is at or below its partition's tail,
//	                                            and the record is made again from the same changes, with the same bytes
//	crash before its end is confirmed           the slot sends it again; its commit lies below the log's end, and it is
//	                                            dropped before it is routed
func (r *relay) commit(ctx context.Context, tx *replication.Tx) error {
	r.tx = nil
	if r.passed {
		if r.reach.Before(evidence.EndOf(tx)) {
			return refusal(errDisorder, "transaction %d ends at %s, beyond the log's end at %s, and committed before it", "",
				tx.XID, tx.EndLSN, r.reach.LSN)
		}
		return nil
	}
	account := r.classifier.Account()
	if !account.Recorded() && account.Heartbeat != nil {
		return r.beaten(ctx, tx, account.Heartbeat)
	}
	if !account.Recorded() {
		r.coverage.reached(evidence.EndOf(tx))
		r.metrics.serverLag.readUpTo(tx.EndLSN)
		r.coverage.wanted = r.coverage.wanted || account.Awaited
		r.waiting()
		return r.settle()
	}
	if err := r.stopDeletions(ctx, tx, account); err != nil {
		return err
	}
	verdict := evidence.Reconcile(account)
	r.conclude(tx, account, verdict)
	return r.conclusion(ctx, evidence.Position{Reach: evidence.EndOf(tx)}, &evidence.TransactionContent{Tx: tx, Account: account, Verdict: verdict})
}

// beaten ends the transaction of a heartbeat: with a coverage record, or with a gap where the heartbeat shows one.
//
//	crash before the gap is in every partition    the slot sends it again; the partitions' tails say where it is
//	crash before the record is acknowledged       the same, and the record is made again with the same bytes
func (r *relay) beaten(ctx context.Context, tx *replication.Tx, h *evidence.Heartbeat) error {
	var gaps []*evidence.Marker
	if gap := evidence.GapAt(tx, h, r.last); gap != nil {
		gaps = append(gaps, gap)
	}
	for _, topic := range r.replaced {
		gaps = append(gaps, &evidence.Marker{
			Op: evidence.Gap, Reason: evidence.ReasonTopic, Topic: topic, Time: tx.CommitTime, From: r.origin, To: evidence.EndOf(tx), At: tx.Position(uint32(len(gaps))),
		})
	}
	r.heartbeats.received(h)
	for _, gap := range gaps {
		if err := r.mark(ctx, gap); err != nil {
			return err
		}
	}
	r.replaced, r.last = nil, evidence.LastBeat{Beat: h, Reach: evidence.EndOf(tx)}
	if len(gaps) == 0 {
		content := &evidence.CoverageContent{At: tx.CommitTime, Heartbeat: h, Surroundings: r.surroundings()}
		return r.conclusion(ctx, evidence.Position{Reach: evidence.EndOf(tx)}, content)
	}
	// The heartbeat is in the first one: were only that one written, nothing would be missed but words.
	for _, gap := range gaps {
		at := evidence.Position{Reach: evidence.EndOf(tx), Seq: gap.At.Ordinal}
		err := r.conclusion(ctx, at, &evidence.MarkerContent{Marker: gap, Heartbeat: h, Surroundings: r.surroundings()})
		if err != nil {
			return err
		}
		h = nil
	}
	return nil
}

// conclusion puts a transaction's record in line when there is room.
func (r *relay) conclusion(ctx context.Context, at evidence.Position, content evidence.Content) error {
	for r.queue.full() {
		if err := r.wait(ctx); err != nil {
			return err
		}
	}
	r.enqueue(r.writer.Write(content, at))
	return r.settle()
}

// surroundings are what a heartbeat's record says of server and topics.
func (r *relay) surroundings() *evidence.Surroundings {
	w := &evidence.Surroundings{Ancestry: r.ancestry, Process: r.process}
	for _, topic := range []evidence.Topic{r.route.System, r.route.User} {
		t := evidence.TopicEnds{Topic: topic.Name, Ends: make([]int64, topic.Partitions), Fences: make([]int64, topic.Partitions)}
		for partition := range topic.Partitions {
			t.Ends[partition] = r.publisher.End(topic.Name, partition)
			t.Fences[partition], _ = r.publisher.Fence(topic.Name, partition)
		}
		w.Ends = append(w.Ends, t)
	}
	return w
}

// conclude tells people what a transaction came to, where it is not what it should be. Positions and names only.
func (r *relay) conclude(tx *replication.Tx, account *evidence.Account, verdict evidence.Verdict) {
	r.metrics.concluded(account, verdict)
	if verdict != evidence.Mismatch && !account.Unverified() || account.OwnUnverified != nil { // raise has told them
		return
	}
	attributes := []any{"xid", tx.XID, "commit_lsn", tx.CommitLSN.String(), "verdict", string(verdict)}
	if account.Claim != nil {
		attributes = append(attributes, "policy", account.Claim.Policy, "batch", account.Claim.Batch.String())
	}
	r.log.Warn("a transaction is not what the ledger says", attributes...)
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
	if err := r.settle(); err != nil {
		return err
	}
	if m.Stopping {
		return r.stream.CheckStop(r.publisher.Stalled())
	}
	return nil
}

// timelineOf is the timeline on which a position of the server that is read falls.
func (r *relay) timelineOf(at schemas.LSN) schemas.Timeline {
	id := r.stream.Identity()
	return id.TimelineOf(at)
}

// finished says whether everything up to the position has been read, recorded and confirmed.
func (r *relay) finished(until schemas.LSN) bool {
	if r.coverage.upTo.LSN >= until && r.reach.LSN < until && !r.coverage.wanted {
		r.coverage.wanted = true
		r.stream.Wake()
	}
	return r.queue.empty() && r.reach.LSN >= until && r.stream.Confirmed() >= until
}

// waiting keeps the time since when something has been waiting.
func (r *relay) waiting() {
	switch oldest, queued := r.queue.oldest(); {
	case queued:
		r.metrics.behind(oldest)
	case r.tx != nil:
		r.metrics.behind(r.tx.CommitTime)
	default:
		r.metrics.behind(time.Time{})
	}
}

// names keeps the written names of tables.
type names map[uint32]named

type named struct {
	relation *replication.Relation
	name     string
}

func (n names) of(relation *replication.Relation) string {
	known := n[relation.OID]
	if known.relation != relation {
		known = named{relation: relation, name: evidence.TableName(relation)}
		n[relation.OID] = known
	}
	return known.name
}
