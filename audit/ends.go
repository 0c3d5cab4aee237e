package audit

import (
	"slices"
	"time"

	"lapse/audit/evidence"
	"lapse/audit/history"
	"lapse/audit/store"
	"lapse/schemas"
)

// Before every record about events, the log has a fence that says where the partitions of events ended; readers of the log skip fences. So
// a start can check for each partition whether it still has everything that the log says. A fence names the partitions that have grown
// since the one before, and now and then all of them, so that a start need not read far back.
//
//	crash before the fence               no later record is about events that it does not cover
//	crash between it and the record      the slot sends the transaction again; a later fence says more
//	crash between a loss's gap and its   the next start finds and reports the loss again: a loss that is reported twice is
//	 fence                               better than one that is not reported

// In a busy log one fence precedes all records of endsEvery, and one with all partitions every endsAll records.
const (
	endsEvery = 25 * time.Millisecond
	endsAll   = 1000
)

// ends is what the log says about the ends of partitions. The zero value says nothing.
type ends struct {
	said    map[string][]store.End // by topic and partition, for the partitions that fences have named
	covers  uint64                 // mark of the last event that is covered
	owed    bool                   // a fence is due: at the start, and after the gap of topics that lost something
	records int                    // records appended since a fence named all partitions
	last    time.Time
	soon    *time.Timer // wakes the stream when the next fence may be written

	// The topics that lost records, until the log has the gap. Until then fences repeat their former ends, so that an auditor that starts in
	// between finds the loss again.
	lost []string
	told evidence.LogPosition // position of the gap's last record; zero while there is none
}

// sayEnds appends a fence that covers all events acknowledged up to a mark. It returns false if the sink is full, or if it is too soon.
// follows says that records follow at once, and are of one batch with it.
func (r *relay) sayEnds(acked uint64, follows bool) bool {
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
		Follows: follows,
	})
	if !ok {
		return false
	}
	r.lastMark, e.said, e.covers, e.last, e.owed = mark, said, acked, r.now(), false
	return true
}

// mustSay reports whether a fence must precede the next record, which is about the events up to a mark.
func (e *ends) mustSay(events uint64) bool {
	return e.owed || events > e.covers || e.records >= endsAll
}

// presentEnds returns the value of the next fence, and the ends that it names.
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

// appended records a record of the log. After the gap of topics that lost something, the next fence names their present ends.
func (e *ends) appended(at evidence.LogPosition) {
	e.records++
	if e.told != (evidence.LogPosition{}) && at.Compare(e.told) >= 0 {
		*e = ends{owed: true, soon: e.soon}
	}
}
