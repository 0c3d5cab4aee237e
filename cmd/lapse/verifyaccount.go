package main

import (
	"context"
	"errors"
	"fmt"

	"lapse/audit/evidence"
	"lapse/audit/store"
	"lapse/audit/tree"
	"lapse/audit/verify"
	"lapse/schemas"
)

// eventsAndProofs returns the partitions of events and the topic of commitments; nil if there is none.
func (o *logVerifier) eventsAndProofs(ctx context.Context) (events []*partitionReader, proofs *partitionReader, err error) {
	for _, topic := range []string{o.settings.Topics.System, o.settings.Topics.User} {
		of, err := o.topics.partitionsOf(ctx, topic)
		if err != nil {
			return nil, nil, err
		}
		events = append(events, of...)
	}
	all, err := o.topics.partitionsOf(ctx, o.settings.Topics.Proofs)
	var missing *store.MissingError
	if errors.As(err, &missing) {
		return events, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return events, all[0], nil
}

// checkEvents counts the events. If the verification continues another one, it only checks their order.
func (o *logVerifier) checkEvents(ctx context.Context, log *partitionReader, events []*partitionReader, proofs *partitionReader) error {
	if o.before == nil {
		return o.account(ctx, log, events, proofs)
	}
	o.result.NotChecked = append(o.result.NotChecked, "the events' numbers and commitments against the log's records: a verification from the beginning does that, or --dir")
	for _, l := range events {
		if err := o.readEvents(ctx, l); err != nil {
			return err
		}
	}
	return nil
}

// account reads the verified log once more, together with the topics of events and commitments. It checks that each transaction has the events
// that its record states.
func (o *logVerifier) account(ctx context.Context, log *partitionReader, events []*partitionReader, proofs *partitionReader) error {
	keys, err := o.settings.Keys.EpochKeys()
	if err != nil || len(keys) == 0 {
		keys = nil //nolint:nilerr // they are not available; the result says so
	}
	a := &verify.Account{System: o.settings.Topics.System, Keys: keys, Lost: o.lost}
	for _, l := range events {
		a.Events = append(a.Events, o.partition(ctx, l))
	}
	if proofs != nil {
		a.Proofs = o.partition(ctx, proofs)
	}
	leaves := tree.Reader{Tree: tree.New(o.stream.Key)}
	log.reader = o.topics.client.Reader(log.topic, log.partition, log.first, log.end)
	far := o.progress("record")
	defer far.end()
	err = o.topics.each(ctx, log, func(rec *schemas.Record, offset int64) error {
		record := evidence.LogRecordIn(rec)
		if record == nil || !leaves.Take(rec) {
			return nil
		}
		leaf := leaves.Tree.Size() - 1
		far.at("counting events of", int(leaf)+1, int(max(o.result.Records, leaf+1)))
		return o.located(a.Record(leaf, record))
	})
	if err == nil {
		err = o.located(a.End())
	}
	if err != nil {
		return err
	}
	o.result.Transactions, o.result.Rooted, o.result.Opened = a.Transactions, a.Rooted, a.Opened
	o.result.NotChecked = append(o.result.NotChecked, notCounted(a)...)
	return nil
}

// partition passes a partition's records, and checks the order that the topics promise.
func (o *logVerifier) partition(ctx context.Context, l *partitionReader) *verify.Stream {
	var at int64
	ordered := l.topic != o.settings.Topics.Proofs
	return &verify.Stream{
		Name: fmt.Sprintf("%s/%d", l.topic, l.partition), Topic: l.topic, Cut: l.first > 0, Line: func() int { return int(at) },
		Next: func() (*schemas.Record, error) {
			rec, offset, err := o.topics.read(ctx, l)
			if err != nil {
				return nil, err
			}
			at = offset
			if ordered {
				err = o.inOrder(l, &rec, offset)
			}
			if err != nil {
				return nil, err
			}
			return &rec, nil
		},
	}
}

// located makes a discrepancy a fault in a topic's partition.
func (o *logVerifier) located(err error) error {
	var d *verify.Discrepancy
	switch {
	case !errors.As(err, &d):
		return err
	case d.Name == "":
		return &tree.Fault{File: o.place, Leaf: d.Leaf, What: d.What}
	default:
		return &tree.Fault{File: d.Name, Leaf: d.Leaf, What: fmt.Sprintf("offset %d: %s", d.Line, d.What)}
	}
}

// notCounted lists what the account could not check.
func notCounted(a *verify.Account) (open []string) {
	add := func(n int, what, why string) {
		if n > 0 {
			open = append(open, fmt.Sprintf("%s: %s", counted(n, what), why))
		}
	}
	add(a.Forgotten, "transaction", "some or all of their events are no longer in the topics")
	add(a.Unrooted, "transaction", "their commitments are no longer in the proof store, and they do not come to their root without it")
	add(a.Rootless, "transaction", "they name a month whose key was destroyed, and commit to none of their rows")
	add(a.Hidden, "event", "their keys are hidden, too long, or typed: they were counted, and not held against their commitments")
	add(a.TakenBack, "event", "a rewind says that they never happened, and the log has no record of them")
	add(a.Beyond, "event", "they come after the log's last record")
	if a.Keys == nil {
		open = append(open, "the rows of events against their commitments: that needs the key named rows (--keys)")
	}
	return open
}
