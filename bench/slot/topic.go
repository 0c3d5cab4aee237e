package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

// ends are the offsets at which topics end, by partition.
type ends map[string][]int64

// sum is how many records there are below.
func (e ends) sum() (n int64) {
	for _, topic := range e {
		for _, end := range topic {
			n += end
		}
	}
	return n
}

// ends asks the broker where topics end.
func (p *place) ends(ctx context.Context, topics ...string) (ends, error) {
	asked := map[string][]kafka.OffsetRequest{}
	for _, topic := range topics {
		for partition := range partitions {
			asked[topic] = append(asked[topic], kafka.LastOffsetOf(partition))
		}
	}
	answer, err := p.kafka.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: asked})
	if err != nil {
		return nil, err
	}
	found := ends{}
	for _, topic := range topics {
		found[topic] = make([]int64, partitions)
		for _, partition := range answer.Topics[topic] {
			if partition.Error != nil {
				return nil, partition.Error
			}
			found[topic][partition.Partition] = partition.LastOffset
		}
	}
	return found, nil
}

// arrived tells whether there are as many records as wanted above some offsets, and a few more at most; and if they are to be read through,
// whether each row of the backlog is there once.
func (p *place) arrived(ctx context.Context, from ends, want, few int, through, named bool) error {
	var topics []string
	for topic := range from {
		topics = append(topics, topic)
	}
	to, err := p.ends(ctx, topics...)
	if err != nil {
		return err
	}
	if n := int(to.sum() - from.sum()); n < want || n > want+few {
		return fmt.Errorf("%d records came, wanted are %d", n, want)
	}
	if !through {
		return nil
	}
	t := newTally(p.first, p.deleted)
	for topic := range from {
		for partition := range partitions {
			if err := p.read(ctx, topic, partition, from[topic][partition], to[topic][partition], t); err != nil {
				return fmt.Errorf("read %s/%d: %w", topic, partition, err)
			}
		}
	}
	return t.judge(named)
}

// read counts the records of a partition from one offset up to another.
func (p *place) read(ctx context.Context, topic string, partition int, from, to int64, t *tally) (err error) {
	if from == to {
		return nil
	}
	r := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{p.broker.Addr()}, Topic: topic, Partition: partition, MinBytes: 1, MaxBytes: 10 << 20, MaxWait: 100 * time.Millisecond,
	})
	defer func() { err = errors.Join(err, r.Close()) }()
	if err := r.SetOffset(from); err != nil {
		return err
	}
	for {
		m, err := r.ReadMessage(ctx)
		if err != nil {
			return err
		}
		if m.Value != nil { // no tombstone
			t.add(m.Key)
		}
		if m.Offset >= to-1 {
			return nil
		}
	}
}

// tally counts the events of rows.
type tally struct {
	first    int
	seen     []bool
	named    int // different rows
	again    int // events of a row that had one
	nameless int // events that name no row
	foreign  int // events of other rows
}

func newTally(first, rows int) *tally { return &tally{first: first, seen: make([]bool, rows)} }

// add counts one record by its key. A key that is no object is of a record of the publisher's own, such as a fence.
func (t *tally) add(key []byte) {
	id, state := rowOf(key)
	switch at := id - t.first; {
	case state == noEvent:
	case state == noName:
		t.nameless++
	case at < 0 || at >= len(t.seen):
		t.foreign++
	case t.seen[at]:
		t.again++
	default:
		t.seen[at] = true
		t.named++
	}
}

// judge is an error unless there is one event for each row, by its name if they have names.
func (t *tally) judge(named bool) error {
	wantNamed, wantNameless := len(t.seen), 0
	if !named {
		wantNamed, wantNameless = 0, len(t.seen)
	}
	if t.named != wantNamed || t.nameless != wantNameless || t.again > 0 || t.foreign > 0 {
		return fmt.Errorf("of %d deleted rows %d are in the topic by name, %d of them more than once; and there are %d events without a name and %d of other rows",
			len(t.seen), t.named, t.again, t.nameless, t.foreign)
	}
	return nil
}

// What a record's key says.
type keyState int

const (
	noEvent keyState = iota // no object
	noName                  // an object without an id
	hasName
)

// rowOf is the id in the key of an event. Lapse writes {"id":"42"}; Debezium {"id":42}, beside a schema as {"schema":…,"payload":{"id":42}}.
func rowOf(key []byte) (id int, state keyState) {
	type row struct {
		ID json.RawMessage `json:"id"`
	}
	var k struct {
		row
		Payload row `json:"payload"`
	}
	if json.Unmarshal(key, &k) != nil {
		return 0, noEvent
	}
	id, err := strconv.Atoi(strings.Trim(cmp.Or(string(k.ID), string(k.Payload.ID)), `"`))
	if err != nil {
		return 0, noName
	}
	return id, hasName
}
