package main

import (
	"context"
	"io"

	"golang.org/x/mod/sumdb/note"

	"lapse/audit/evidence"
	"lapse/audit/export"
	"lapse/audit/report"
	"lapse/audit/tree"
	"lapse/audit/verify"
	"lapse/schemas"
)

// reportedLog is a log, in its topic or in a folder. A report reads it several times and verifies it each time.
type reportedLog struct {
	app       *app
	name      string // the log's name
	place     string // the place that faults name
	verifier  note.Verifier
	key       *tree.Key // nil if it is not available
	known     [][]byte
	witnesses []*tree.Witness
	quorum    int
	each      func(ctx context.Context, take func(rec *schemas.Record, offset, end int64) error) error
	close     func()

	found *tree.Streamed // the result of the last pass
}

// openReported finds the log, its key, and the checkpoints that others have.
func (r *reporter) openReported(ctx context.Context, v *verified) (log *reportedLog, err error) {
	if r.dir != "" {
		log, err = r.openReportedFolder(ctx, v)
	} else {
		log, err = r.openReportedTopic(ctx, v)
	}
	if err != nil {
		return nil, err
	}
	log.app = r.app
	if log.known, _, err = r.takeKnown(v); err == nil {
		_, log.witnesses, log.quorum, err = r.verifyWitnesses(v)
	}
	if err != nil {
		log.close()
		return nil, err
	}
	return log, nil
}

func (r *reporter) openReportedFolder(ctx context.Context, v *verified) (*reportedLog, error) {
	files, err := export.Open(ctx, r.dir)
	if err != nil {
		return nil, err
	}
	of := &files.Manifest.Files[0]
	log := &reportedLog{name: files.Manifest.Tree.Log, place: of.Name, close: files.Close}
	if log.verifier, err = r.verifier.key(files.Manifest.Tree, v); err != nil {
		return nil, err
	}
	log.each = func(ctx context.Context, take func(rec *schemas.Record, offset, end int64) error) error {
		_, err := files.Each(ctx, of, func(rec *schemas.Record, offset int64) error { return take(rec, offset, of.End) })
		return err
	}
	return log, nil
}

func (r *reporter) openReportedTopic(ctx context.Context, v *verified) (*reportedLog, error) {
	s, err := r.settings()
	if err != nil {
		return nil, err
	}
	o := &logVerifier{verifier: r.verifier, result: v, settings: s, topics: consumer{app: r.app, settings: s, order: newOrder(io.Discard, s.Topics.System)}}
	if o.topics.client, err = r.newClient(s); err != nil {
		return nil, err
	}
	log := &reportedLog{place: s.Topics.Log + "/0", close: func() { o.topics.client.Close() }}
	signed, err := o.newestNote(ctx)
	if err == nil {
		var newest *tree.Checkpoint
		if newest, err = tree.Peek(signed); err == nil {
			log.name = newest.Origin
			log.verifier, err = o.publicKey(newest.Origin, signed)
		}
	}
	if err != nil {
		log.close()
		return nil, err
	}
	log.key = o.key
	log.each = func(ctx context.Context, take func(rec *schemas.Record, offset, end int64) error) error {
		readers, err := o.topics.partitionsOf(ctx, s.Topics.Log)
		if err != nil {
			return err
		}
		l := readers[0]
		return o.topics.each(ctx, l, func(rec *schemas.Record, offset int64) error { return take(rec, offset, l.end) })
	}
	return log, nil
}

// pass reads the log once. It checks that every record is a leaf of one tree, that each checkpoint signs that tree at its size, and that the
// records follow one another. signed is nil if the caller does not need the checkpoints.
func (l *reportedLog) pass(ctx context.Context, step string, take taker, signed func(report.Checkpoint)) error {
	stream := &tree.Stream{Place: l.place, Verifier: l.verifier, Key: l.key, Known: l.known, Witnesses: l.witnesses, Quorum: l.quorum}
	if signed != nil {
		stream.Signed = func(c tree.Checkpoint) { signed(report.Checkpoint{Records: c.Size, Root: c.Root.String()}) }
	}
	if _, err := stream.Begin(nil); err != nil {
		return invalid(err)
	}
	at := int64(-1)
	var broken error
	order := verify.Log{Broken: func(what string) {
		if broken == nil {
			broken = &tree.Fault{File: l.place, Leaf: at, What: what}
		}
	}}
	far := l.app.progress("record")
	defer far.end()
	err := l.each(ctx, func(rec *schemas.Record, offset, end int64) error {
		far.at(step, int(offset)+1, int(end))
		record := evidence.LogRecordIn(rec) // an unreadable record is another writer's
		leaf, err := stream.Record(rec, offset, record != nil)
		if err != nil || leaf < 0 {
			return err
		}
		at = leaf
		order.Next(record)
		take(leaf, record)
		return broken
	})
	if err != nil {
		return err
	}
	if l.found, err = stream.End(); err != nil {
		return err
	}
	if order.End(); broken != nil {
		return broken
	}
	if l.found.Newest == nil {
		return &tree.Fault{File: l.place, Leaf: -1, What: "no checkpoint of it verifies with this key"}
	}
	return nil
}

// tell copies the findings to the report.
func (l *reportedLog) tell(v *verified) {
	v.seen(l.found.Seen, l.found.Cosigned)
	v.unsigned(l.found)
}
