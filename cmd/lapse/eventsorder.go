package main

import (
	"fmt"
	"io"
	"sync"

	"lapse/audit/evidence"
	"lapse/replication"
	"lapse/schemas"
)

// order checks what the topics promise: in one partition the events of a database stand in the order of its history, gaps
// and rewinds included, each of them once; an event of a row is in one partition; and the system topic has the policies' deletes, and no other has one. Whoever breaks that has written into
// the topic beside the auditor, or taken something out and put it back. Safe for concurrent use.
type order struct {
	err    io.Writer
	system string // the topic; empty: it is not held against the causes

	mu     sync.Mutex
	breaks int
	read   map[place]int64 // the offset of the last record
}

// place is a partition.
type place struct {
	topic     string
	partition int32
}

// shownBreaks is how many are named.
const shownBreaks = 20

// source names a database in the headers of its events.
type source struct{ system, database string }

// follows checks a record against those before it in its partition; last is where the newest of each database stands.
// Fences, and what Lapse has not written, have no place in the order.
func (o *order) follows(last map[source]replication.Position, topic string, partition int32, r *schemas.Record, offset int64) {
	if from := o.offsets(place{topic, partition}, offset); from < offset {
		o.broken("%s/%d: there are no records at the offsets %d to %d", topic, partition, from, offset-1)
	}
	if r.IsFence() {
		return
	}
	at, err := evidence.EventPosition(r)
	if err != nil {
		return
	}
	if cause := r.Header(evidence.HeaderCause); o.system != "" && cause != "" && (cause == evidence.System.String()) != (topic == o.system) {
		o.broken("%s/%d: the event at offset %d is of cause %s, which this topic has none of", topic, partition, offset, cause)
	}
	of := source{r.Header(evidence.HeaderSystem), r.Header(evidence.HeaderDatabase)}
	before, any := last[of]
	last[of] = at // of a record out of place too: what comes behind it is judged by it, and each break counts once
	switch {
	case !any || at.Compare(before) > 0:
	case at == before:
		o.broken("%s/%d: the event at offset %d is there twice: it is the one before it again", topic, partition, offset)
	default:
		o.broken("%s/%d: the event at offset %d stands behind one that is later in the database's history", topic, partition, offset)
	}
}

// offsets is where a record should be: Lapse's own leave no offset out. Brokers do that have lost a file in the middle of a partition,
// compaction, and the end of somebody's transaction.
func (o *order) offsets(at place, offset int64) (expected int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, known := o.read[at]
	if o.read == nil {
		o.read = map[place]int64{}
	}
	o.read[at] = offset
	if !known {
		return offset
	}
	return before + 1
}

// once is told of an event that was read in another partition too. Only what concerns no single row may be.
func (o *order) once(r *schemas.Record) {
	if _, err := evidence.EventPosition(r); err != nil {
		return
	}
	switch r.Header(schemas.HeaderOp) {
	case evidence.Delete.String(), evidence.SoftDelete.String(), evidence.Move.String():
		o.broken("%s/%d: an event of a row is in another partition too", r.Topic, r.Partition)
	}
}

func (o *order) broken(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.breaks++
	if o.breaks > shownBreaks || o.err == nil {
		return
	}
	_, _ = fmt.Fprintf(o.err, format+"\n", args...) // the exit code says it too
}

// verdict is errNeedsPerson if the promise was broken.
func (o *order) verdict() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.breaks == 0 {
		return nil
	}
	if o.err != nil {
		_, _ = fmt.Fprintf(o.err, "the order that the topics promise is broken in %s: somebody else has written into them, or the brokers "+
			"have lost something; find out who may write (ACL: WRITE), and trust the log rather than these events\n", counted(uint64(o.breaks), "place"))
	}
	return errNeedsPerson
}
