package main

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"lapse/audit/evidence"
	"lapse/audit/rows"
	"lapse/audit/tree"
	"lapse/replication"
	"lapse/schemas"
)

// findCheckpoint finds the newest checkpoint and, if available, the log's key.
func (p *prover) findCheckpoint(ctx context.Context) (err error) {
	keys, err := logKeysOf(p.settings)
	if err != nil {
		return err
	}
	if s, is := p.source.(*folderSource); is {
		if p.signed, err = s.files.Checkpoint(); err != nil {
			return invalid(err)
		}
		if p.newest, err = tree.Peek(p.signed); err != nil {
			return invalid(fmt.Errorf("the export's checkpoint: %w", err))
		}
		if keys != nil {
			p.log, err = keys(p.newest.Origin)
		}
		return err
	}
	c := p.source.(topicSource).consumer
	readers, err := c.partitionsOf(ctx, p.settings.Topics.Log)
	if err != nil {
		return err
	}
	newest, err := c.newestCheckpoint(ctx, readers[0].end)
	if err != nil {
		return err
	}
	if newest.of == nil {
		return errors.New("the log has no checkpoint yet: the auditor signs it within half a minute, or at the end of a run")
	}
	p.signed, p.newest, p.log = newest.signed, newest.of, newest.key
	return nil
}

// leaves passes the values of the log's records as leaves of its tree.
func (p *prover) leaves(ctx context.Context, take func(leaf int64, value []byte) error) error {
	reader := tree.Reader{Tree: tree.New(p.log)}
	return p.source.each(ctx, p.source.topicNames().Log, func(rec *schemas.Record) error {
		if evidence.LogRecordIn(rec) == nil || !reader.Take(rec) {
			return nil
		}
		return take(reader.Tree.Size()-1, rec.Value)
	})
}

// readLog finds the records of the deletions, and whether a later rewind undid them. If event topics have lost their beginning, it tries the key.
func (p *prover) readLog(ctx context.Context, found []*deletion) ([]*deletion, error) {
	at := map[replication.Position][]*deletion{}
	for _, d := range found {
		place := d.facts.At
		place.Ordinal = 0
		at[place] = append(at[place], d)
	}
	var guess *guesser
	if p.forgot && p.key.named != nil {
		guess, p.tried = newGuesser(p), true
	}
	type rewind struct {
		leaf int64
		to   evidence.Reach
	}
	var rewinds []rewind
	err := p.leaves(ctx, func(leaf int64, value []byte) error {
		record, err := evidence.ParseLogRecord(value)
		if err != nil {
			return err
		}
		switch c := record.Content.(type) {
		case *evidence.TransactionContent:
			place := replication.Position{History: record.History, Timeline: record.Timeline, Commit: c.CommitLSN}
			if c.Further {
				return nil // only the transaction's first record has the root
			}
			for _, d := range at[place] {
				d.leaf = leaf
			}
			if guess != nil && at[place] == nil {
				guess.transaction(leaf, record, c)
			}
		case *evidence.MarkerContent:
			if c.Marker.Op == evidence.Rewind {
				rewinds = append(rewinds, rewind{leaf, c.Marker.From})
			}
		}
		return nil
	})
	if err == nil && guess != nil {
		var guessed []*deletion
		guessed, err = guess.find(ctx)
		found = append(guessed, found...)
	}
	for _, d := range found {
		for _, r := range rewinds {
			if d.leaf >= 0 && d.leaf < r.leaf && r.to.Below(evidence.ReachOf(d.facts.At)) {
				d.gone = fmt.Sprintf("it never happened in the database that the log goes on with: record %d of the log is a rewind to %s", r.leaf, r.to)
			}
		}
	}
	return found, err
}

// readProofs reads the transactions' commitments.
func (p *prover) readProofs(ctx context.Context, found []*deletion) error {
	at := map[replication.Position][]*deletion{}
	for _, d := range found {
		place := d.facts.At
		place.Ordinal = 0
		at[place] = append(at[place], d)
	}
	return p.source.each(ctx, p.source.topicNames().Proofs, func(rec *schemas.Record) error {
		from, all, ok := rows.ChunkOf(rec)
		from.Ordinal = 0
		if ok {
			for _, d := range at[from] {
				d.chunks.Take(all)
			}
		}
		return nil
	})
}

// proveRecords makes the inclusion proofs of the records.
func (p *prover) proveRecords(ctx context.Context, found []*deletion) (err error) {
	any := false
	for _, d := range found {
		if d.leaf >= 0 && d.leaf < p.newest.Size {
			if d.prover, err = tree.NewProver(p.newest.Size, d.leaf); err != nil {
				return err
			}
			any = true
		}
	}
	if !any {
		return nil
	}
	err = p.leaves(ctx, func(leaf int64, value []byte) error {
		if leaf >= p.newest.Size {
			return nil
		}
		hash := tlog.RecordHash(tree.Entry(value))
		for _, d := range found {
			if d.prover != nil {
				d.prover.Add(hash)
			}
			if d.leaf == leaf {
				d.record = value
			}
		}
		return nil
	})
	for _, d := range found {
		if err == nil && d.prover != nil {
			d.proof, err = d.prover.Proof()
		}
	}
	return err
}
