package history

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/google/uuid"

	"lapse/audit/evidence"
	"lapse/audit/store"
	"lapse/replication"
	"lapse/schemas"
)

// Topics is how far the audit is, by the topics. It is read before the topics are fenced, when another auditor may still be writing:
// afterwards Equals compares it with what is below the fences.
type Topics struct {
	LogEnd       *evidence.LogRecord // the log's last record; nil for an empty log
	logEndOffset int64               // its offset
	logFirst     int64               // the log's first offset
	complete     *evidence.LogRecord // the last record of a complete transaction: LogEnd, if its transaction is complete
	lastOffset   int64               // of the last record that looks like the log's, which may be a copy of an old one; -1 for none
	heartbeat    *evidence.LogRecord // the record of the log's last heartbeat; nil for none
	said         foundEnds           // where the partitions of events end, by the log
	recorded     foundEnds           // every event below these ends has a record in the log
	origin       *evidence.LogRecord // the log's first record; nil for an empty log
	fence        string              // the process that fenced the log last, as its fence says; empty for none

	route *evidence.Route // the route in force at the log's end; the configuration's for an empty log
	Next  *evidence.Route // the route that follows it; nil: the configuration asks for the one in force

	tails map[string][]tail  // by topic and partition
	ends  map[string][]int64 // by topic: the offset of each partition's next record

	// Topics that lack records that the log names, because they were deleted, or their end was cut.
	replaced []string
}

// tail is the end of a partition.
type tail struct {
	position replication.Position // of the last event; zero for none
	record   schemas.Record       // the last event
	offset   int64                // of the last record that looks like an event, which may be a copy of an old one; -1 for none
}

// NoTopics returns the state of empty topics.
func NoTopics(route *evidence.Route) *Topics {
	p := &Topics{lastOffset: -1, route: route, tails: map[string][]tail{}, ends: map[string][]int64{route.Log.Name: {0}}}
	p.makeTails()
	return p
}

// readTopics reads the ends of all topics. A missing topic counts as empty. With a fresh slot there need not be a log: then readTopics does
// not wait for missing topics, since the take-over reads them again.
func readTopics(ctx context.Context, client store.Client, route *evidence.Route, fresh bool) (*Topics, error) {
	p := NoTopics(route)
	if fresh {
		if known, err := client.Known(ctx, route.Log.Name); err != nil || !known {
			return p, err
		}
	}
	var missing *store.MissingError
	if err := p.readLog(ctx, client, route); err != nil && !errors.As(err, &missing) {
		return nil, err
	}
	if err := p.findRoutes(ctx, client, route); err != nil {
		return nil, err
	}
	p.makeTails()
	for _, topic := range p.Events() {
		if err := p.readTopic(ctx, client, route, topic); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// makeTails makes room for the tails of all partitions.
func (p *Topics) makeTails() {
	for _, topic := range p.Events() {
		p.tails[topic.Name], p.ends[topic.Name] = make([]tail, topic.All()), make([]int64, topic.All())
		for i := range p.tails[topic.Name] {
			p.tails[topic.Name][i].offset = -1
		}
	}
}

// readTopic reads the ends of a topic's partitions, and checks whether it still has what the log says.
func (p *Topics) readTopic(ctx context.Context, client store.Client, route *evidence.Route, topic evidence.Topic) error {
	bounds, err := client.Offsets(ctx, topic.Name)
	var missing *store.MissingError
	if err != nil && !errors.As(err, &missing) {
		return err
	}
	lost := false
	for partition := range p.said.by[topic.Name] {
		lost = lost || int(partition) >= len(bounds)
	}
	for partition := range min(topic.All(), int32(len(bounds))) { // the take-over reports too few partitions
		b := bounds[partition]
		p.ends[topic.Name][partition] = b.End
		if said, is := p.said.by[topic.Name][partition]; is && !lost {
			has, err := client.Has(ctx, topic.Name, partition, b, said)
			if err != nil {
				return err
			}
			lost = !has
		}
		if err := p.readTail(ctx, client, route, topic.Name, partition, b.End); err != nil {
			return err
		}
	}
	if lost {
		p.replaced = append(p.replaced, topic.Name)
	}
	return nil
}

// readTail finds a partition's last event. Somebody may have copied an old event after it. Events without a record in the log are above an
// end that the log names, so the last event is the one with the highest position above that end.
func (p *Topics) readTail(ctx context.Context, client store.Client, route *evidence.Route, topic string, partition int32, end int64) error {
	since := end // the log names no end: the last record is the last event
	if p.said.by != nil {
		since = p.recorded.by[topic][partition].Offset // 0: a route that followed has more partitions
	}
	ours := oursIn(&route.Source)
	t := &p.tails[topic][partition]
	return client.Backward(ctx, topic, partition, end, func(rec *schemas.Record, offset int64) (bool, error) {
		if rec.IsFence() || !ours(rec) {
			return true, nil
		}
		if t.offset >= 0 && offset < since {
			return false, nil
		}
		position, err := positionOf(rec, &route.Source)
		if err != nil {
			return false, err
		}
		t.offset = max(t.offset, offset)
		if t.position.Compare(position) < 0 {
			t.position, t.record = position, *rec
		}
		return offset > since, nil
	})
}

// logLookBack is the least number of records that are searched for one that reaches further than those after it: somebody may have copied old ones to
// the log's end.
const logLookBack = 100

// readLog reads the log's end, its last heartbeat, its newest fence and its first record.
func (p *Topics) readLog(ctx context.Context, client store.Client, route *evidence.Route) error {
	log := route.Log.Name
	bounds, err := client.Offsets(ctx, log)
	if err != nil {
		return err
	}
	p.ends[log], p.logFirst = []int64{bounds[0].End}, bounds[0].First
	read := 0
	err = client.Backward(ctx, log, 0, bounds[0].End, func(rec *schemas.Record, offset int64) (bool, error) {
		read++
		p.said.take(rec, route, nil)
		if rec.IsFence() && p.fence == "" {
			p.fence = rec.Header(evidence.HeaderProcess)
		}
		entry, err := logRecordOf(rec, route)
		if err != nil {
			return false, err
		}
		if entry != nil {
			if err := checkRoute(entry, route, offset); err != nil {
				return false, err
			}
			p.lastOffset = max(p.lastOffset, offset)
			if p.LogEnd == nil || p.LogEnd.LogPosition.Compare(entry.LogPosition) < 0 {
				p.LogEnd, p.logEndOffset = entry, offset
			}
		}
		return p.LogEnd == nil || p.fence == "" || !p.said.all || read < logLookBack, nil
	})
	if err != nil || p.LogEnd == nil {
		return err
	}
	if err := p.readWhole(ctx, client, route); err != nil {
		return err
	}
	reader := client.Reader(log, 0, bounds[0].First, p.logEndOffset+1)
	for p.origin == nil {
		rec, _, err := reader.Next(ctx)
		if err != nil {
			return err
		}
		if p.origin, err = logRecordOf(&rec, route); err != nil {
			return err
		}
	}
	return nil
}

// readWhole finds the last record and the last heartbeat of complete transactions, and the position above which the topics have nothing.
func (p *Topics) readWhole(ctx context.Context, client store.Client, route *evidence.Route) error {
	read := 0
	return client.Backward(ctx, route.Log.Name, 0, p.logEndOffset+1, func(rec *schemas.Record, _ int64) (bool, error) {
		read++
		entry, err := logRecordOf(rec, route)
		if err != nil {
			return false, err
		}
		if entry != nil && !p.isPartial(entry) {
			if p.complete == nil || p.complete.LogPosition.Compare(entry.LogPosition) < 0 {
				p.complete = entry
			}
			if entry.Heartbeat != nil && (p.heartbeat == nil || p.heartbeat.Reach.Before(entry.Reach)) {
				p.heartbeat = entry
			}
		}
		if p.complete != nil {
			p.recorded.take(rec, route, p.complete)
		}
		found := p.complete != nil && p.recorded.all && (p.heartbeat != nil || p.complete.Beat == (uuid.UUID{}))
		return !found || read < logLookBack, nil
	})
}

// isPartial reports whether a record is of the log's last transaction, and that transaction is incomplete. The slot sends it again.
func (p *Topics) isPartial(r *evidence.LogRecord) bool {
	return p.LogEnd.More && r.Reach == p.LogEnd.Reach
}

// Newest returns the position of the log's last record; zero for an empty log.
func (p *Topics) Newest() evidence.LogPosition {
	if p.LogEnd == nil {
		return evidence.LogPosition{}
	}
	return p.LogEnd.LogPosition
}

// Equals reports whether two readings found the same. Records in between (fences, foreign ones) do not count.
func (p *Topics) Equals(other *Topics) bool {
	if p.lastOffset != other.lastOffset {
		return false
	}
	for topic, tails := range p.tails {
		for partition := range tails {
			if partition >= len(other.tails[topic]) || tails[partition].offset != other.tails[topic][partition].offset {
				return false
			}
		}
	}
	return true
}

// empty reports whether the topics have no event.
func (p *Topics) empty() bool {
	for _, tails := range p.tails {
		for i := range tails {
			if tails[i].position != (replication.Position{}) {
				return false
			}
		}
	}
	return true
}

// logRecordOf parses a record of the log; nil for a fence, and for a foreign record. A record of this database in another format is an
// error, because a later version wrote it.
func logRecordOf(rec *schemas.Record, route *evidence.Route) (*evidence.LogRecord, error) {
	if rec.IsFence() || rec.Header(schemas.HeaderOp) == "" {
		return nil, nil
	}
	source := &route.Source
	if schema := rec.Header(evidence.HeaderSchema); schema != strconv.Itoa(evidence.LogSchema) {
		if _, err := strconv.Atoi(schema); err == nil && rec.Header(evidence.HeaderSystem) == strconv.FormatUint(source.SystemIdentifier, 10) {
			return nil, Refuse(ErrForeignTopic, "%s has records of format %s; this program knows %d", "run the version of lapse that wrote them",
				route.Log.Name, schema, evidence.LogSchema)
		}
		return nil, nil
	}
	r, err := evidence.ParseLogRecord(rec.Value)
	if err != nil {
		return nil, nil //nolint:nilerr // it looks like a record and is none: foreign
	}
	return r, nil
}

// IsOurs returns a function that tells events of this database, and records of its log, from foreign records.
func IsOurs(route *evidence.Route) func(*schemas.Record) bool {
	event := oursIn(&route.Source)
	return func(rec *schemas.Record) bool {
		if rec.Topic != route.Log.Name {
			return event(rec)
		}
		record, err := logRecordOf(rec, route)
		return record != nil || err != nil
	}
}

// oursIn tells events from foreign records. An event of another database counts as an event, so that it can be refused by name.
func oursIn(source *evidence.Source) func(*schemas.Record) bool {
	return func(rec *schemas.Record) bool {
		_, err := positionOf(rec, source)
		return !errors.Is(err, evidence.ErrNoEvent)
	}
}

// walk reads the log backward, as far as a start needs it.
type walk struct {
	from    int64               // offset to read forward from: everything before it is at or below the slot's position
	beat    *evidence.LogRecord // the record of the newest heartbeat that was wanted; nil if the log has none
	rewinds []rewound           // in the part that is read
	lost    int                 // transactions after that heartbeat
	// settling is what the log says of how users' deletions are judged; SaysNothing if the log has no heartbeat.
	settling evidence.Settling
	before   *evidence.LogRecord // the last record at or below the slot's position; nil if the log begins above it
}

// rewound is a rewind record: what comes before it and lies above its fork never happened.
type rewound struct {
	offset int64
	fork   evidence.Reach
}

// walkBack reads the log backward until it is at or below floor, and has met a heartbeat that wanted accepts. wanted is nil if no heartbeat
// is wanted. It skips records that a rewind revoked.
func walkBack(
	ctx context.Context, client store.Client, route *evidence.Route, p *Topics, floor evidence.Reach, wanted func(*evidence.LogRecord) bool,
) (*walk, error) {
	w := &walk{}
	err := client.Backward(ctx, route.Log.Name, 0, p.logEndOffset+1, func(rec *schemas.Record, offset int64) (bool, error) {
		record, err := logRecordOf(rec, route)
		if err != nil || record == nil {
			return err == nil, err
		}
		if w.dead(offset, record) {
			return true, nil
		}
		w.note(offset, record)
		if w.settling == evidence.SaysNothing && !p.isPartial(record) {
			w.settling = record.Settling()
		}
		if w.beat == nil && record.Kind == evidence.KindTransaction {
			w.lost++
		}
		if w.beat == nil && wanted != nil && record.Heartbeat != nil && wanted(record) {
			w.beat = record
		}
		if w.before == nil && !floor.Below(record.Reach) {
			w.before, w.from = record, offset
		}
		return w.before == nil || wanted != nil && (w.beat == nil || w.settling == evidence.SaysNothing), nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the log back: %w", err)
	}
	return w, nil
}

// note records a rewind record.
func (w *walk) note(offset int64, record *evidence.LogRecord) {
	if c, is := record.Content.(*evidence.MarkerContent); is && c.Marker.Op == evidence.Rewind {
		w.rewinds = append(w.rewinds, rewound{offset: offset, fork: c.Marker.From})
	}
}

// dead reports whether a later rewind revoked a record.
func (w *walk) dead(offset int64, record *evidence.LogRecord) bool {
	for _, r := range w.rewinds {
		if offset < r.offset && r.fork.Below(record.Reach) {
			return true
		}
	}
	return false
}
