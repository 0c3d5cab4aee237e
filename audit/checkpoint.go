package audit

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"lapse/audit/evidence"
	"lapse/audit/history"
	"lapse/audit/tree"
	"lapse/schemas"
)

// checkpointEvery is the time between two checkpoints. With the time that Kafka takes to acknowledge them, none is more than 30 seconds late.
const checkpointEvery = 20 * time.Second

// checkpoints keeps the log's tree, and signs it. The zero value has no tree, for a sink without a log.
//
//	crash before a checkpoint is acknowledged    the next start finds the one before, and the leaves after it along their chain
type checkpoints struct {
	tree   *tree.Tree
	newest uint64 // mark of the newest leaf
	signed int64  // leaves that the last checkpoint covers
	last   time.Time
	wanted bool // the run ends: the next checkpoint is due at once
	waits  bool // some leaf has no checkpoint

	// A tree that is to be signed once its leaves are acknowledged.
	taken  *tree.Snapshot
	covers uint64 // mark of its last leaf
	at     time.Time
	offset int64 // no later leaf is below it

	soon wake // when the next checkpoint is due
}

// place gives a record its place in the tree.
func (c *checkpoints) place(rec *schemas.Record) (leaf tree.Leaf) {
	if c.tree != nil {
		leaf = c.tree.Next(rec.Value)
		rec.Headers = leaf.AppendHeaders(rec.Headers)
	}
	return leaf
}

// placed records that the sink has a leaf.
func (r *relay) placed(leaf tree.Leaf, mark uint64) {
	c := &r.checkpoints
	if c.tree == nil {
		return
	}
	c.tree.Add(leaf)
	c.newest = mark
	if !c.waits {
		c.waits = true
		r.metrics.setUnsigned(r.now())
	}
}

// done reports whether everything is signed.
func (c *checkpoints) done() bool { return c.tree == nil || c.signed == c.tree.Size() }

// sign appends a checkpoint if one is due. It covers what is acknowledged up to a mark.
func (r *relay) sign(acked uint64) error {
	c := &r.checkpoints
	if c.done() {
		return nil
	}
	if c.taken == nil {
		if pause := checkpointEvery - r.now().Sub(c.last); pause > 0 && !c.wanted {
			c.soon.in(pause, r.stream)
			return nil
		}
		// Everything acknowledged is below every leaf that is appended from here on.
		taken, err := c.tree.Snapshot()
		if err != nil {
			return err
		}
		c.taken, c.covers, c.at, c.offset = taken, c.newest, r.now(), r.sink.End(r.route.Log.Name, 0).Offset
		c.tree.Keep(r.showing.wants)
		if r.showing.to != nil {
			c.tree.Span()
		}
	}
	if acked < c.covers {
		return nil // an acknowledgement wakes the stream
	}
	value, signed, err := c.taken.Sign(c.offset)
	if err != nil {
		return err
	}
	mark, ok := r.appendFence(value)
	if !ok {
		return nil // full: the next acknowledgement wakes the stream
	}
	r.showing.signed(signed, c.taken.Size(), c.taken.Proofs, r.now(), mark)
	r.lastMark, c.signed, c.last, c.taken = mark, c.taken.Size(), r.now(), nil
	c.soon.forget()
	since := c.at
	if c.done() {
		c.waits, since = false, time.Time{}
	}
	r.metrics.setUnsigned(since)
	return nil
}

// appendFence appends to the log a record that is no leaf of its tree. It names this process: a start reads the log back to such a fence, and need
// not read everything that one process has written.
func (r *relay) appendFence(value []byte) (mark uint64, ok bool) {
	return r.sink.Append(schemas.Record{
		Topic: r.route.Log.Name, Value: value, Time: r.now(),
		Headers: []schemas.Header{{Key: schemas.HeaderOp, Value: []byte(schemas.OpFence)}, {Key: evidence.HeaderProcess, Value: []byte(r.process)}},
	})
}

// signed reports whether a checkpoint covers the whole log. If none does, the next one is due at once.
func (r *relay) signed() bool {
	c := &r.checkpoints
	if c.done() {
		return true
	}
	if !c.wanted {
		c.wanted = true
		r.stream.Wake()
	}
	return false
}

// logName is the origin of the log's checkpoints: the configured one, or one that no other log has.
func (c *Config) logName(source *evidence.Source) string {
	return cmp.Or(c.LogName, DefaultLogName(source.SystemIdentifier, source.DatabaseOID, c.Log))
}

// DefaultLogName is a log's name if none is configured.
func DefaultLogName(system uint64, database uint32, topic string) string {
	return fmt.Sprintf("lapse/%d/%d/%s", system, database, topic)
}

// readTree reads the log's tree below the fences, and answers the server meanwhile.
func (s *session) readTree(ctx context.Context, checked *history.Topics) (t *tree.Reader, err error) {
	a := s.auditor
	key, err := a.config.treeKey(&s.route.Source)
	if err != nil {
		return nil, err
	}
	client, err := a.newClient()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	inner, end := a.probeBeside(ctx, s.stream)
	err = end(s.stream.During(inner, func(ctx context.Context) (err error) {
		t, err = checked.ReadTree(ctx, client, key, s.route)
		return err
	}))
	if err != nil {
		return nil, err
	}
	if t.Foreign > 0 {
		a.log.Warn("skipped records in the log that the auditor did not write; nothing else may write to this topic: find out who "+
			"does, and take the right away (ACL: WRITE)", "topic", a.config.Log, "records", t.Foreign)
	}
	if t.Adopted > 0 {
		a.log.Warn("the log has had no tree: its records are signed as they are", "topic", a.config.Log, "records", t.Adopted)
	}
	a.log.Info("the log's tree is read", "leaves", t.Tree.Size(), "signed", t.Signed, "key", key.Public())
	return t, nil
}
