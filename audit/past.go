package audit

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"lapse/audit/kafka"
	"lapse/replication"
)

// past is what the topics say of how far the audit has come. It is read before anybody is fenced: another auditor may
// still be writing, so it is compared with what lies below the fences afterwards.
type past struct {
	end    *LogRecord // the log's last record; nil for an empty log
	offset int64      // its offset; -1 for none
	origin *LogRecord // the log's first record; nil for an empty log
	fence  string     // the process that fenced the log last, as its fence says; empty for none

	tails map[string][]tail  // by topic and partition
	ends  map[string][]int64 // by topic: the offset of each partition's next record
}

// tail is the last event of a partition.
type tail struct {
	position replication.Position // zero for none
	record   kafka.Record
}

// headerProcess is in a fence: the process that wrote it.
const headerProcess = "lapse-process"

// readPast reads the ends of all topics. Topics that are not there are empty ones. Where the slot is fresh, so that a log
// is not to be expected, they are not waited for: whoever takes them over looks again.
func readPast(ctx context.Context, client *kafka.Client, route *Route, fresh bool) (*past, error) {
	p := &past{offset: -1, tails: map[string][]tail{}, ends: map[string][]int64{}}
	var missing *kafka.MissingTopicError
	if fresh {
		known, err := client.Known(ctx, route.Log.Name)
		if err != nil || !known {
			return p.nothing(route), err
		}
	}
	if err := p.readLog(ctx, client, route); errors.As(err, &missing) {
		p.ends[route.Log.Name] = []int64{0}
	} else if err != nil {
		return nil, err
	}
	for _, topic := range []Topic{route.System, route.User} {
		tails, ends := make([]tail, topic.Partitions), make([]int64, topic.Partitions)
		bounds, err := client.Offsets(ctx, topic.Name)
		if err != nil && !errors.As(err, &missing) {
			return nil, err
		}
		for partition := range min(topic.Partitions, int32(len(bounds))) { // that there are too few is said when they are taken over
			end := bounds[partition].End
			found, err := client.Tail(ctx, topic.Name, partition, end, oursIn(&route.Source))
			if err != nil {
				return nil, err
			}
			ends[partition] = end
			if found.Found {
				tails[partition].record = found.Record
				if tails[partition].position, err = positionOf(&found.Record, &route.Source); err != nil {
					return nil, err
				}
			}
		}
		p.tails[topic.Name], p.ends[topic.Name] = tails, ends
	}
	return p, nil
}

// nothing is what topics that are not there say.
func (p *past) nothing(route *Route) *past {
	for _, topic := range []Topic{route.System, route.User} {
		p.tails[topic.Name], p.ends[topic.Name] = make([]tail, topic.Partitions), make([]int64, topic.Partitions)
	}
	p.ends[route.Log.Name] = []int64{0}
	return p
}

// readLog reads the log's end, its newest fence and its first record.
func (p *past) readLog(ctx context.Context, client *kafka.Client, route *Route) error {
	log := route.Log.Name
	end, err := client.End(ctx, log, 0)
	if err != nil {
		return err
	}
	p.ends[log] = []int64{end}
	err = client.Backward(ctx, log, 0, end, func(rec *kafka.Record, offset int64) (bool, error) {
		switch {
		case rec.IsFence():
			if p.fence == "" {
				p.fence = headerOf(rec, headerProcess)
			}
		case p.end == nil && isLeaf(rec):
			p.end, err = parseLeaf(rec, route)
			p.offset = offset
		}
		return err == nil && (p.end == nil || p.fence == ""), err
	})
	if err != nil || p.end == nil {
		return err
	}
	bounds, err := client.Offsets(ctx, log)
	if err != nil {
		return err
	}
	reader := client.Reader(log, 0, bounds[0].First, p.offset+1)
	for p.origin == nil {
		rec, _, err := reader.Next(ctx)
		if err != nil {
			return err
		}
		if !rec.IsFence() && isLeaf(&rec) {
			if p.origin, err = parseLeaf(&rec, route); err != nil {
				return err
			}
		}
	}
	return nil
}

// equals says whether two readings found the same. What lies between the records (fences, foreign ones) does not count.
func (p *past) equals(other *past) bool {
	if p.offset != other.offset {
		return false
	}
	for topic, tails := range p.tails {
		for partition := range tails {
			if partition >= len(other.tails[topic]) || tails[partition].position != other.tails[topic][partition].position {
				return false
			}
		}
	}
	return true
}

// empty says whether the topics have no event.
func (p *past) empty() bool {
	for _, tails := range p.tails {
		for i := range tails {
			if tails[i].position != (replication.Position{}) {
				return false
			}
		}
	}
	return true
}

// isLeaf tells a record of the log from what somebody else wrote into its topic.
func isLeaf(rec *kafka.Record) bool {
	return headerOf(rec, headerSchema) == strconv.Itoa(LogSchema) && headerOf(rec, headerOp) != "" && len(rec.Value) > 0 && rec.Value[0] == '{'
}

// isOurs tells events of this database, and records of its log, from what somebody else wrote into the topics.
func isOurs(source *Source, log string) func(*kafka.Record) bool {
	event := oursIn(source)
	return func(rec *kafka.Record) bool {
		if rec.Topic == log {
			return isLeaf(rec)
		}
		return event(rec)
	}
}

// oursIn tells events from what somebody else wrote. One of another database is one too: it is refused by name.
func oursIn(source *Source) func(*kafka.Record) bool {
	return func(rec *kafka.Record) bool {
		_, err := positionOf(rec, source)
		return !errors.Is(err, errNoEvent)
	}
}

func parseLeaf(rec *kafka.Record, route *Route) (*LogRecord, error) {
	r, err := ParseLogRecord(rec.Value)
	if err != nil {
		return nil, refuse(ErrForeignTopic, "%s: %v", "name a topic that is used by this database alone (topics.log)",
			route.Log.Name, err)
	}
	return r, nil
}

// walk is a look back into the log, as far as a start needs it.
type walk struct {
	from    int64              // where to read forward from: everything before it is at or below the slot's position
	beat    *LogRecord         // the record of the newest heartbeat that was wanted; nil if the log has none
	ends    map[string][]int64 // where the topics ended at the newest heartbeat
	rewinds []rewound          // in the part that is read
	records int                // how many were looked at
	before  *LogRecord         // the last record at or below the slot's position; nil if the log begins above it
}

// rewound is a rewind record: what stands before it and above its fork never happened.
type rewound struct {
	offset int64
	fork   Reach
}

// walkBack goes back from the log's end until it is at or below floor, and a heartbeat was met that wanted takes. wanted is
// nil if none is looked for. What a rewind took back is passed over.
func walkBack(
	ctx context.Context, client *kafka.Client, route *Route, p *past, floor Reach, wanted func(*LogRecord) bool,
) (*walk, error) {
	w := &walk{}
	err := client.Backward(ctx, route.Log.Name, 0, p.offset+1, func(rec *kafka.Record, offset int64) (bool, error) {
		if rec.IsFence() || !isLeaf(rec) {
			return true, nil
		}
		leaf, err := parseLeaf(rec, route)
		if err != nil {
			return false, err
		}
		w.records++
		if w.dead(offset, leaf) {
			return true, nil
		}
		if leaf.Kind == KindRewind {
			w.rewinds = append(w.rewinds, rewound{offset: offset, fork: leaf.From})
		}
		if w.ends == nil && leaf.Heartbeat != nil {
			w.ends = leaf.Ends
		}
		if w.beat == nil && wanted != nil && leaf.Heartbeat != nil && wanted(leaf) {
			w.beat = leaf
		}
		if w.before == nil && !floor.below(leaf.Reach) {
			w.before, w.from = leaf, offset
		}
		return w.before == nil || wanted != nil && w.beat == nil, nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the log back: %w", err)
	}
	return w, nil
}

// dead says whether a record was taken back by a rewind behind it.
func (w *walk) dead(offset int64, leaf *LogRecord) bool {
	for _, r := range w.rewinds {
		if offset < r.offset && r.fork.below(leaf.Reach) {
			return true
		}
	}
	return false
}

// below compares places on the server's log, whatever the history: r lies below other.
func (r Reach) below(other Reach) bool {
	r.History, other.History = 0, 0
	return r.before(other)
}

func headerOf(rec *kafka.Record, name string) string {
	for i := range rec.Headers {
		if rec.Headers[i].Key == name {
			return string(rec.Headers[i].Value)
		}
	}
	return ""
}
