package history

import (
	"context"
	"errors"
	"math"

	"lapse/audit/evidence"
	"lapse/audit/store"
	"lapse/audit/tree"
	"lapse/schemas"
)

// ErrForeignLog is the reason if the log ends with a record that was not linked to the one before under the log's key.
var ErrForeignLog = errors.New("the log's end is not what this auditor's key has written")

// ReadTree reads the log's tree, once no other process writes the log: the last checkpoint, and along the chain what follows it. A log without a
// checkpoint is read from its beginning; if none of its records has a place in a tree, all of them become leaves as they are.
//
// The log's last record must be the tree's last leaf. Otherwise the audit stops, because what is written next would follow a record that
// the tree does not have.
func (p *Topics) ReadTree(ctx context.Context, client store.Client, key *tree.Key, route *evidence.Route) (*tree.Reader, error) {
	t := &tree.Reader{Tree: tree.New(key)}
	if p.LogEnd == nil {
		return t, nil
	}
	log, end := route.Log.Name, p.ends[route.Log.Name][0]
	from := p.logFirst
	var last evidence.LogPosition // of the newest leaf
	err := client.Backward(ctx, log, 0, end, func(rec *schemas.Record, _ int64) (bool, error) {
		if t.Signed == 0 {
			if !rec.IsFence() {
				return true, nil
			}
			if resumed, offset, ok := key.Resume(rec.Value); ok {
				t.Tree, t.Signed, from = resumed, resumed.Size(), offset
				t.Note, _ = tree.NoteIn(rec.Value)
				resumed.Span() // a witness has probably seen it
			}
			return true, nil
		}
		// The last leaf that the checkpoint covers is below it.
		if index, placed := tree.IndexOf(rec); placed && index != t.Signed-1 {
			return true, nil
		}
		record, err := logRecordOf(rec, route)
		if err != nil || record == nil {
			return true, err
		}
		last = record.LogPosition
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	err = store.Each(ctx, client.Reader(log, 0, from, end), func(rec *schemas.Record, _ int64) error {
		record, err := logRecordOf(rec, route)
		if err == nil && record != nil && t.Take(rec) {
			last = record.LogPosition
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if next := t.Tree.HandedTo(); next != "" {
		return nil, Refuse(ErrForeignLog, "%s is handed over to the key %s, which is not at hand", "give this machine the file of the key named log that the other "+
			"auditors have", log, next)
	}
	if p.LogEnd.LogPosition.Compare(last) > 0 {
		return nil, Refuse(ErrForeignLog, "%s: the last record, at offset %d, is no leaf of the tree, which has %d", "if the key named log is another one, or "+
			"log_name has changed, put it back; if that key follows the one of the log, put the former one beside it, in a file whose name begins with log-; else somebody else has written this record: find out who may (ACL: WRITE), and "+anotherLog,
			log, p.logEndOffset, t.Tree.Size())
	}
	return t, nil
}

// End is the end of the log, for ReadGrown.
const End = math.MaxInt64

// errGrown ends a reading that has reached its size.
var errGrown = errors.New("the tree has the size that was asked for")

// ReadGrown reads the log's tree up to a size, with a span from another size: from the newest checkpoint not above that, along the chain.
// It reads the topic from there on twice, once backward.
func ReadGrown(ctx context.Context, client store.Client, key *tree.Key, route *evidence.Route, from, to int64) (*tree.Tree, error) {
	log := route.Log.Name
	bounds, err := client.Offsets(ctx, log)
	if err != nil {
		return nil, err
	}
	t, begin := &tree.Reader{Tree: tree.New(key)}, bounds[0].First
	err = client.Backward(ctx, log, 0, bounds[0].End, func(rec *schemas.Record, _ int64) (bool, error) {
		if !rec.IsFence() {
			return true, nil
		}
		resumed, offset, ok := key.Resume(rec.Value)
		if !ok || resumed.Size() > from {
			return true, nil
		}
		t.Tree, t.Signed, begin = resumed, resumed.Size(), offset
		return false, nil
	})
	if err != nil {
		return nil, err
	}
	reached := func() bool {
		if t.Tree.Size() == from {
			t.Tree.Span()
		}
		return t.Tree.Size() == to
	}
	if reached() {
		return t.Tree, nil
	}
	err = store.Each(ctx, client.Reader(log, 0, begin, bounds[0].End), func(rec *schemas.Record, _ int64) error {
		record, err := logRecordOf(rec, route)
		if err == nil && record != nil && t.Take(rec) && reached() {
			err = errGrown
		}
		return err
	})
	if errors.Is(err, errGrown) {
		err = nil
	}
	return t.Tree, err
}

// RefuseCut is the refusal if a witness has seen more of the log than exists.
func RefuseCut(err error) error {
	return &RefusalError{Reason: err, Fix: "records of the log are gone, or it is another one: find out who may delete records or topics of it " +
		"(ACL: DELETE), or has restored an older copy, and put back what there was; else " + anotherLog}
}
