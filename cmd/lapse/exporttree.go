package main

import (
	"context"
	"fmt"

	"golang.org/x/mod/sumdb/note"

	"lapse/audit/evidence"
	"lapse/audit/tree"
	"lapse/schemas"
)

// exportedTree is the tree in the manifest.
type exportedTree struct {
	Log       string  `json:"log"` // the log's name: the origin of its checkpoints
	Records   int64   `json:"records"`
	Root      string  `json:"root"`
	Former    string  `json:"former_sha256"` // of the file with the earlier checkpoints
	PublicKey *string `json:"public_key"`    // null if the key named log was not available
}

// under reports whether the manifest's key, if it has one, is the key that signed the newest checkpoint.
func (t *exportedTree) under(by note.Verifier) bool {
	if t.PublicKey == nil {
		return true
	}
	named, err := note.NewVerifier(*t.PublicKey)
	return err == nil && named.Name() == by.Name() && named.KeyHash() == by.KeyHash()
}

// treeExport writes the log's tree next to the topics' files.
type treeExport struct {
	*tree.Export
	reader tree.Reader
	key    *tree.Key // nil if it is not available
	newest []byte
	of     *tree.Checkpoint
}

// newTreeExport begins or continues the export of the log's tree up to its newest checkpoint. It returns nil if the log has none.
func (c *consumer) newTreeExport(ctx context.Context, dir string, log *partitionReader, before *exported) (*treeExport, error) {
	x, err := c.newestCheckpoint(ctx, log.end)
	if err != nil || x.of == nil {
		return nil, err
	}
	x.reader.Tree = tree.New(x.key)
	if before != nil {
		x.Export, err = tree.ContinueExport(dir, x.newest)
	} else {
		x.Export, err = tree.NewExport(dir, x.newest)
	}
	return x, err
}

// newestCheckpoint finds the log's newest checkpoint; of is nil if the log has none. With the key named log only checkpoints and records
// made with that key count; without it, lapse verify finds what others wrote.
func (c *consumer) newestCheckpoint(ctx context.Context, end int64) (*treeExport, error) {
	x := &treeExport{}
	keys, err := logKeysOf(c.settings)
	if err != nil {
		return nil, err
	}
	err = c.client.Backward(ctx, c.settings.Topics.Log, 0, end, func(rec *schemas.Record, _ int64) (bool, error) {
		note, of := x.checkpointIn(rec)
		if of == nil {
			return true, nil
		}
		if keys != nil {
			key, err := keys(of.Origin)
			if err != nil {
				return true, nil //nolint:nilerr // not a log's name
			}
			if _, _, ours := key.Resume(rec.Value); !ours {
				return true, nil
			}
			x.key = key
		}
		x.newest, x.of = note, of
		return false, nil
	})
	if err != nil {
		return nil, c.silence(err)
	}
	return x, nil
}

// checkpointIn returns the checkpoint in a log record; nil if it is not one, or if the key did not make it.
func (x *treeExport) checkpointIn(rec *schemas.Record) ([]byte, *tree.Checkpoint) {
	if !rec.IsFence() {
		return nil, nil
	}
	note, is := tree.NoteIn(rec.Value)
	if !is {
		return nil, nil
	}
	if x.key != nil {
		if _, _, ours := x.key.Resume(rec.Value); !ours {
			return nil, nil
		}
	}
	of, err := tree.Peek(note)
	if err != nil {
		return nil, nil
	}
	return note, of
}

// take adds a record from the log's partition.
func (x *treeExport) take(rec *schemas.Record) error {
	if x == nil {
		return nil
	}
	if note, of := x.checkpointIn(rec); of != nil {
		return x.Former(note)
	}
	if note, is := tree.CosignedIn(rec.Value); is && rec.IsFence() {
		if x.key == nil || x.key.HasCosigned(rec.Value) {
			x.Cosigned(note)
		}
		return nil
	}
	if !isLogRecord(rec) || !x.reader.Take(rec) || x.reader.Tree.Size() <= x.Size() {
		return nil // already in the folder
	}
	return x.Add(rec.Value)
}

// isLogRecord tells log records from fences and from other writers' records.
func isLogRecord(rec *schemas.Record) bool { return logRecordIn(rec) != nil }

// logRecordIn parses a log record; nil if it is not one.
func logRecordIn(rec *schemas.Record) *evidence.LogRecord {
	if rec.IsFence() || rec.Header(schemas.HeaderOp) == "" {
		return nil
	}
	record, err := evidence.ParseLogRecord(rec.Value)
	if err != nil {
		return nil
	}
	return record
}

// close ends the export and returns its entry in the manifest.
func (x *treeExport) close() (*exportedTree, error) {
	if x == nil {
		return nil, nil
	}
	if err := x.Close(); err != nil {
		return nil, fmt.Errorf("export the log's tree: %w", err)
	}
	of := &exportedTree{Log: x.of.Origin, Records: x.of.Size, Root: x.of.Root.String(), Former: x.FormerSum()}
	if signer := x.key.By(x.newest); signer != nil {
		public := signer.Public()
		of.PublicKey = &public
	}
	return of, nil
}

// told describes the tree as text.
func (t *exportedTree) told() string {
	if t == nil {
		return "; the log has no checkpoint yet, so the files cannot be verified"
	}
	return fmt.Sprintf("; the checkpoint covers %s of the log", counted(uint64(t.Records), "record"))
}
