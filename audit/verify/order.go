package verify

import (
	"fmt"
	"sync"

	"lapse/audit/evidence"
	"lapse/replication"
	"lapse/schemas"
)

// Order checks what the topics promise: in one partition the events of a database are in the order of its history, gaps and rewinds
// included, each of them once; an event of a row is in one partition; and the system topic has the policies' deletes, and no other topic
// has one. If that is broken, somebody other than the auditor has written into the topic, or has moved records. Safe for concurrent use.
type Order struct {
	System string            // the system topic; empty: causes are not checked
	Broken func(what string) // called for each break; nil: they are only counted

	mu     sync.Mutex
	breaks int
	read   map[partition]int64 // the offset of the last record
	last   map[stream]replication.Position
}

type partition struct {
	topic  string
	number int32
}

// stream is the state of one database in a partition.
type stream struct {
	partition
	system, database string
}

// Breaks returns how often the promise was broken.
func (o *Order) Breaks() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.breaks
}

// Next checks a record against those before it in its partition. Every record of the partition must be handed over: Lapse's own leave no
// gaps in the offsets. Gaps come from brokers that lost a file in the middle of a partition, from compaction, and from the end of a foreign
// transaction.
func (o *Order) Next(topic string, number int32, r *schemas.Record, offset int64) {
	o.mu.Lock()
	at := partition{topic, number}
	before, known := o.read[at]
	if o.read == nil {
		o.read = map[partition]int64{}
	}
	o.read[at] = offset
	o.mu.Unlock()
	if known && before+1 < offset {
		o.broken("%s/%d: there are no records at the offsets %d to %d", topic, number, before+1, offset-1)
	}
	o.Event(topic, number, r, offset)
}

// Event is Next for a caller that does not hand over every record. Fences, and foreign records, have no place in the order.
func (o *Order) Event(topic string, number int32, r *schemas.Record, offset int64) {
	if r.IsFence() {
		return
	}
	at, err := evidence.EventPosition(r)
	if err != nil {
		return
	}
	if cause := r.Header(evidence.HeaderCause); o.System != "" && cause != "" && (cause == evidence.System.String()) != (topic == o.System) {
		o.broken("%s/%d: the event at offset %d is of cause %s, which this topic has none of", topic, number, offset, cause)
	}
	of := stream{partition{topic, number}, r.Header(evidence.HeaderSystem), r.Header(evidence.HeaderDatabase)}
	o.mu.Lock()
	before, any := o.last[of]
	if o.last == nil {
		o.last = map[stream]replication.Position{}
	}
	o.last[of] = at // even of a record out of place: later ones are compared with it, so each break counts once
	o.mu.Unlock()
	switch {
	case !any || at.Compare(before) > 0:
	case at == before:
		o.broken("%s/%d: the event at offset %d is there twice: it is the one before it again", topic, number, offset)
	default:
		o.broken("%s/%d: the event at offset %d comes after one that is later in the database's history", topic, number, offset)
	}
}

// Elsewhere receives an event that was read in another partition too. Only an event that concerns no single row may be.
func (o *Order) Elsewhere(r *schemas.Record) {
	if _, err := evidence.EventPosition(r); err != nil {
		return
	}
	switch r.Header(schemas.HeaderOp) {
	case evidence.Delete.String(), evidence.SoftDelete.String(), evidence.Move.String():
		o.broken("%s/%d: an event of a row is in another partition too", r.Topic, r.Partition)
	}
}

func (o *Order) broken(format string, args ...any) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.breaks++
	if o.Broken != nil {
		o.Broken(fmt.Sprintf(format, args...))
	}
}
