package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/mod/sumdb/note"

	"lapse/audit/evidence"
	"lapse/audit/export"
	"lapse/audit/tree"
	"lapse/audit/verify"
	witnesses "lapse/audit/witness"
	"lapse/internal/config"
	"lapse/internal/durable"
	"lapse/planner/database"
	"lapse/schemas"
)

// logVerifier verifies the log in its topic, the topics of events and the ledger, as far as they are available.
type logVerifier struct {
	*verifier
	topics    consumer
	settings  *config.Settings
	result    *verified
	key       *tree.Key // nil if it is not available
	witnesses []witnesses.Witness
	says      []*int64 // what each witness has seen, read before the log's end
	stream    tree.Stream
	records   verify.Log
	clock     verify.Clock
	ledger    ledgerSums
	before    *verifiedState // the verification to continue; nil to start from the beginning
	place     string
	last      *evidence.LogRecord
	conn      *pgx.Conn   // nil if the database is not available
	confirmed schemas.LSN // the slot's position, read before the log's end
	unread    bool        // that is where init made the slot: nobody has read it
	fault     error       // the first fault in the order of records
	broken    string      // the last fault in the order of events
	lost      map[string]evidence.Reach
}

// recentBatches is longer than a batch takes to reach the log while the audit is healthy.
const recentBatches = 2 * time.Minute

func (v *verifier) online(ctx context.Context, result *verified) error {
	o := &logVerifier{verifier: v, result: result, lost: map[string]evidence.Reach{}}
	s, err := v.settings()
	if err != nil {
		return err
	}
	o.settings, o.topics = s, consumer{app: v.app, settings: s, order: newOrder(nil, s.Topics.System)}
	if o.topics.client, err = v.newClient(s); err != nil {
		return err
	}
	defer o.topics.client.Close()
	o.topics.order.Broken = func(what string) { o.broken = what }
	o.place = s.Topics.Log + "/0"
	if err := o.begin(ctx); err != nil {
		return err
	}
	if err := o.openLedger(ctx); err != nil {
		return err
	}
	if o.conn != nil {
		defer database.Close(o.conn)
	}
	// Read the log's end before the topics': they then have everything that the log speaks of.
	log, err := o.topics.partitionsOf(ctx, s.Topics.Log)
	if err != nil {
		return err
	}
	events, proofs, err := o.eventsAndProofs(ctx)
	if err != nil {
		return err
	}
	found, err := o.readLog(ctx, log[0])
	if err != nil {
		return err
	}
	if err := o.compareWitnesses(found); err != nil {
		return err
	}
	if err := o.checkEvents(ctx, log[0], events, proofs); err != nil {
		return err
	}
	state := &verifiedState{Kind: verifiedKind, Note: string(found.Note), Checkpoint: found.State()}
	for _, l := range events {
		state.Partitions = append(state.Partitions, verifiedOffset{l.topic, l.partition, l.end - 1})
	}
	if err := o.compareLedger(ctx); err != nil || v.save == "" {
		return err
	}
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	return durable.Write(v.save, append(text, '\n'))
}

// begin finds the log's key, loads the known checkpoints, and asks the witnesses. What they have seen must by now be in the log.
func (o *logVerifier) begin(ctx context.Context) error {
	signed, err := o.newestNote(ctx)
	if err != nil {
		return err
	}
	newest, err := tree.Peek(signed)
	if err != nil {
		return err
	}
	public, err := o.publicKey(newest.Origin, signed)
	if err != nil {
		return err
	}
	all, keys, quorum, err := o.verifyWitnesses(o.result)
	if err != nil {
		return err
	}
	o.witnesses = all
	o.stream = tree.Stream{Place: o.place, Verifier: public, Key: o.key, Witnesses: keys, Quorum: quorum}
	if o.stream.Known, o.before, err = o.takeKnown(o.result); err != nil {
		return err
	}
	o.says, err = o.askSays(ctx, o.place, all, signed, newest.Size, o.result)
	return err
}

// newestNote is the log's newest checkpoint; with the key named log, the newest one that this key made.
func (o *logVerifier) newestNote(ctx context.Context) ([]byte, error) {
	bounded, cancel := context.WithTimeout(ctx, brokerPatience)
	defer cancel()
	newest, err := o.topics.newestCheckpoint(bounded, -1)
	if err != nil {
		return nil, err
	}
	if newest.of == nil {
		return nil, invalid(fmt.Errorf("%s has no checkpoint yet: an auditor writes one within half a minute", o.settings.Topics.Log))
	}
	o.key = newest.key
	return newest.signed, nil
}

// publicKey is the public key that the user named, or that of the available key.
func (o *logVerifier) publicKey(origin string, signed []byte) (note.Verifier, error) {
	if o.public == "" && o.key == nil {
		return nil, wrongUsage("the log's key is not known: give it with --public-key; the auditor logs it at each start")
	}
	if o.public == "" {
		by := o.key.By(signed)
		o.result.PublicKey = by.Public()
		return by.Verifier(), nil
	}
	public, err := o.verifier.key(&export.Tree{Log: origin}, o.result)
	if err == nil && o.key != nil && !slices.ContainsFunc(o.key.All(), func(k *tree.Key) bool { return k.Public() == o.result.PublicKey }) {
		o.key = nil // another log's
	}
	return public, err
}

// readLog reads the log's topic.
func (o *logVerifier) readLog(ctx context.Context, l *partitionReader) (*tree.Streamed, error) {
	var state []byte
	if o.before != nil {
		state = o.before.Checkpoint
	}
	from, err := o.stream.Begin(state)
	if err != nil {
		return nil, invalid(err)
	}
	if state != nil {
		l.reader = o.topics.client.Reader(l.topic, l.partition, from, l.end)
		o.result.NotChecked = append(o.result.NotChecked, "what was verified before, up to the checkpoint of --known: it is taken as it was")
	} else {
		from = l.first
	}
	o.records = verify.Log{Within: state != nil, Broken: func(what string) {
		if o.fault == nil {
			o.fault = &tree.Fault{File: o.place, Leaf: -1, What: what}
		}
	}}
	o.result.Coverage = &logCoverage{Gaps: []logGap{}}
	far := o.progress("record")
	defer far.end()
	err = o.topics.each(ctx, l, func(rec *schemas.Record, offset int64) error {
		far.at("reading the log:", int(offset-from), int(l.end-from))
		record := evidence.LogRecordIn(rec) // an unreadable record is another writer's
		leaf, err := o.stream.Record(rec, offset, record != nil)
		if err != nil || leaf < 0 {
			return err
		}
		o.take(record, leaf)
		return o.fault
	})
	if err != nil {
		return nil, err
	}
	found, err := o.stream.End()
	if err != nil {
		return nil, err
	}
	if o.records.End(); o.fault != nil {
		return nil, o.fault
	}
	return found, o.tell(found)
}

// namedGaps is the largest number of gaps that are named.
const namedGaps = 100

// take takes a leaf's record.
func (o *logVerifier) take(r *evidence.LogRecord, leaf int64) {
	o.records.Next(r)
	o.clock.Next(leaf, r)
	if f := new(tree.Fault); errors.As(o.fault, &f) && f.Leaf < 0 {
		f.Leaf = leaf
	}
	c := o.result.Coverage
	if o.last == nil {
		c.From = r.Reach.String()
	}
	o.last, c.To = r, r.Reach.String()
	if o.ledger.since.IsZero() {
		o.ledger.since = r.Time
	}
	switch content := r.Content.(type) {
	case *evidence.MarkerContent:
		o.ledger.since = r.Time
		if content.Marker.Op == evidence.Rewind {
			c.Rewinds++
			return
		}
		if m := content.Marker; m.Reason == evidence.ReasonTopic && o.lost[m.Topic].Before(m.To) {
			o.lost[m.Topic] = m.To
		}
		if c.Missing++; c.Missing <= namedGaps {
			c.Gaps = append(c.Gaps, logGap{content.Marker.From.String(), content.Marker.To.String(), string(content.Marker.Reason)})
		}
	case *evidence.TransactionContent:
		if content.Claim != nil {
			o.ledger.log(content.Claim.Batch)
		}
		if content.Verdict == evidence.Mismatch || slices.ContainsFunc(content.Observed, func(t evidence.Tally) bool { return t.Cause == evidence.Unverified }) {
			o.ledger.doubt(content.CommitTime)
		}
	}
}

// tell copies the findings about the log to the result.
func (o *logVerifier) tell(found *tree.Streamed) error {
	if found.Newest == nil {
		return &tree.Fault{File: o.place, Leaf: -1, What: "no checkpoint of it verifies with this key"}
	}
	r := o.result
	r.Log, r.Records, r.Root, r.Checkpoints = found.Newest.Origin, found.Newest.Size, found.Newest.Root.String(), found.Checkpoints+found.Known
	r.seen(found.Seen, found.Cosigned)
	for i := range o.says {
		r.Witnesses[i].Says = o.says[i]
	}
	r.Schedule = &logSchedule{Late: found.Late, Longest: found.Longest.Seconds()}
	if found.LongestLeaf >= 0 {
		r.Schedule.Leaf = &found.LongestLeaf
	}
	r.Foreign = found.Foreign
	r.dated(&o.clock)
	r.unsigned(found)
	if found.Unchecked > 0 {
		r.NotChecked = append(r.NotChecked, fmt.Sprintf("%s: too many records came between the tree that each signs and itself", counted(found.Unchecked, "checkpoint")))
	}
	return nil
}

// unsigned says how many records follow the newest checkpoint.
func (r *verified) unsigned(found *tree.Streamed) {
	if later := found.Records - found.Newest.Size; later > 0 {
		r.NotChecked = append(r.NotChecked, fmt.Sprintf("%s of the log after the newest checkpoint: no one has signed them yet", counted(uint64(later), "record")))
	}
}

// compareWitnesses checks that the log has what the witnesses had seen before it was read.
func (o *logVerifier) compareWitnesses(found *tree.Streamed) error {
	for i, says := range o.says {
		if says != nil && *says > found.Records {
			return &tree.Fault{File: o.place, Leaf: found.Records, What: fmt.Sprintf("%s has seen %d records, and there are %d: the log was cut, or is an older copy",
				o.witnesses[i].Key.Name(), *says, found.Records)}
		}
	}
	return nil
}

// readEvents reads a partition of events, from its beginning or from the last record of a former verification.
func (o *logVerifier) readEvents(ctx context.Context, l *partitionReader) error {
	from := l.first
	if o.before != nil {
		for _, p := range o.before.Partitions {
			if p.Topic == l.topic && p.Partition == l.partition && p.Offset > from && p.Offset < l.end {
				from = p.Offset // the last one again: the next one must follow it
			}
		}
		l.reader = o.topics.client.Reader(l.topic, l.partition, from, l.end)
	}
	far := o.progress("record")
	defer far.end()
	return o.topics.each(ctx, l, func(rec *schemas.Record, offset int64) error {
		far.at(fmt.Sprintf("reading %s/%d:", l.topic, l.partition), int(offset-from), int(l.end-from))
		return o.inOrder(l, rec, offset)
	})
}

// inOrder counts an event and checks its order.
func (o *logVerifier) inOrder(l *partitionReader, rec *schemas.Record, offset int64) error {
	o.result.Events++
	if o.topics.order.Next(l.topic, l.partition, rec, offset); o.broken != "" {
		return &tree.Fault{File: fmt.Sprintf("%s/%d", l.topic, l.partition), Leaf: -1, What: o.broken}
	}
	return nil
}
