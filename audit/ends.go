package audit

import (
	"slices"
	"time"

	"lapse/audit/evidence"
	"lapse/audit/history"
	"lapse/audit/store"
	"lapse/schemas"
)

// Where the partitions of events ended is in the log before every record that speaks of those events: in a fence, which
// readers of the log skip. So a start knows of each partition whether it still has what the log says of it. A fence names the
// partitions that have moved since the one before, and now and then all of them, so that a start reads a short way back.
//
//	crash before the fence               no record after it speaks of events that it does not cover
//	crash between it and the record      the slot sends the transaction again; a later fence says more
//	crash between a loss's gap and its   the next start finds the loss again, and tells it again: a loss that is told twice is
//	 fence                               better than one that nobody tells

// In a busy log one fence precedes all records of endsEvery, and one with all partitions every endsAll records.
const (
	endsEvery = 25 * time.Millisecond
	endsAll   = 1000
)

// ends is what the log says of the ends. The zero value says nothing.
type ends struct {
	said    map[string][]store.End // by topic and partition, for partitions that were said
	covers  uint64                 // mark of the last event that is covered
	owed    bool                   // at the start, and when the gap of topics that lost something is in the log
	records int                    // appended since all partitions were said
	last    time.Time
	soon    *time.Timer // wakes the stream when the next fence may be written

	// The topics that lost their records, until the log has the gap. The log's ends stay those of before, so that an
	// auditor that starts in between finds the loss again.
	lost []string
	told evidence.LogPosition // position of the gap's last record; zero while there is none
}

// sayEnds appends a fence that covers all events that are acknowledged up to a mark. It reports whether it is written; if not,
// the sink is full, or it is too soon.
func (r *relay) sayEnds(acked uint64) bool {
	e := &r.ends
	if pause := endsEvery - r.now().Sub(e.last); pause > 0 && r.stream != nil && r.queue.room(1) {
		if e.soon == nil {
			e.soon = time.AfterFunc(pause, r.stream.Wake)
		}
		e.soon.Reset(pause)
		return false
	}
	r.at(step{before: "ends"})
	value, said := r.presentEnds()
	mark, ok := r.sink.Append(schemas.Record{
		Topic: r.route.Log.Name, Value: value, Time: r.now(), Headers: []schemas.Header{{Key: schemas.HeaderOp, Value: []byte(schemas.OpFence)}},
	})
	if !ok {
		return false
	}
	r.lastMark, e.said, e.covers, e.last, e.owed = mark, said, acked, r.now(), false
	return true
}

// mustSay reports whether a fence must precede the next record, which speaks of the events up to a mark.
func (e *ends) mustSay(events uint64) bool {
	return e.owed || events > e.covers || e.records >= endsAll
}

// presentEnds is the value of the next fence, and what the log says with it.
func (r *relay) presentEnds() (value []byte, said map[string][]store.End) {
	e := &r.ends
	note := history.EndsNote{All: len(e.lost) == 0 && (e.said == nil || e.records >= endsAll), Events: r.events.String()}
	if e.records >= endsAll {
		e.records = 0
	}
	said = map[string][]store.End{}
	of := func(topic evidence.Topic) (moved []history.EndNote) {
		if slices.Contains(e.lost, topic.Name) {
			return nil
		}
		all := make([]store.End, topic.All())
		for partition := range topic.All() {
			end := r.sink.End(topic.Name, partition)
			all[partition], note.Producer = end, end.Producer
			if before := e.said[topic.Name]; note.All || int(partition) >= len(before) || before[partition] != end {
				moved = append(moved, history.EndNote{int64(partition), end.Offset, int64(end.Epoch)})
			}
		}
		said[topic.Name] = all
		return moved
	}
	topics := r.found.Events()
	note.System, note.User = of(topics[0]), of(topics[1])
	return note.Value(), said
}

// appended takes note of a record of the log. After the gap of topics that lost something their present ends are to be said.
func (e *ends) appended(at evidence.LogPosition) {
	e.records++
	if e.told != (evidence.LogPosition{}) && at.Compare(e.told) >= 0 {
		*e = ends{owed: true, soon: e.soon}
	}
}
