package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"lapse/audit/export"
	"lapse/audit/store"
	"lapse/audit/tree"
	"lapse/schemas"
)

// export writes every record of the topics and of the log, up to their present ends, to files in a folder. It reads the log's end
// first, so that the topics already have everything that the log speaks of. The folder is new, empty, or an export to continue.
func (c *consumer) export(cmd *cobra.Command, dir string) (err error) {
	for _, other := range []string{"cause", "policy", "table", "since", "until", "key", "limit", "follow"} {
		if cmd.Flags().Changed(other) {
			return wrongUsage("--export and --%s exclude each other: an export has everything", other)
		}
	}
	ctx, topics := cmd.Context(), c.topicNames()
	w, err := export.Begin(dir, topics)
	if err != nil {
		return err
	}
	if c.client, err = c.newClient(c.settings); err != nil {
		return err
	}
	defer c.client.Close()
	var readers []*partitionReader
	for _, topic := range []string{topics.Log, topics.System, topics.User, topics.Proofs} {
		of, err := c.partitionsOf(ctx, topic)
		var missing *store.MissingError
		if errors.As(err, &missing) && topic == topics.Proofs {
			continue // an auditor of a former version made it
		}
		if err != nil {
			return err
		}
		readers = append(readers, of...)
	}
	newest, err := c.newestCheckpoint(ctx, readers[0].end)
	if err == nil && newest.of != nil {
		err = w.Tree(newest.signed, newest.key)
	}
	if err != nil {
		return fmt.Errorf("export the log's tree: %w", err)
	}
	for _, l := range readers {
		l.reader = c.client.Reader(l.topic, l.partition, w.From(l.topic, l.partition, l.first), l.end)
		of := export.File{Topic: l.topic, Partition: l.partition, First: l.first, End: l.end}
		if err := w.Partition(ctx, of, &exportedPartition{c, l}); err != nil {
			return fmt.Errorf("export %s/%d: %w", l.topic, l.partition, err)
		}
	}
	manifest, err := w.Close()
	if err != nil {
		return err
	}
	if c.asJSON {
		err = c.printJSON(manifest)
	} else {
		records := 0
		for _, f := range manifest.Files {
			records += f.Records
		}
		_, err = fmt.Fprintf(c.out, "%s of %s are in %s%s\n", counted(records, "record"), counted(len(manifest.Files), "partition"), dir, treeText(manifest.Tree))
	}
	return errors.Join(err, c.order.verdict())
}

func (c *consumer) topicNames() export.Topics {
	t := &c.settings.Topics
	return export.Topics{System: t.System, User: t.User, Log: t.Log, Proofs: t.Proofs}
}

// treeText describes an export's tree as text.
func treeText(t *export.Tree) string {
	if t == nil {
		return "; the log has no checkpoint yet, so the files cannot be verified"
	}
	return fmt.Sprintf("; the checkpoint covers %s of the log", counted(uint64(t.Records), "record"))
}

// exportedPartition reads a partition for an export, and checks its order.
type exportedPartition struct {
	*consumer
	of *partitionReader
}

// Next reads the next record.
func (p *exportedPartition) Next(ctx context.Context) (schemas.Record, int64, error) {
	rec, offset, err := p.read(ctx, p.of)
	if err == nil && p.of.topic != p.settings.Topics.Proofs { // not in any order: see package rows
		p.order.Next(p.of.topic, p.of.partition, &rec, offset)
	}
	return rec, offset, err
}

// newestCheckpoint is the log's newest checkpoint.
type newestCheckpoint struct {
	signed []byte
	of     *tree.Checkpoint // nil if the log has none
	key    *tree.Key        // nil if it is not available
}

// newestCheckpoint finds the log's newest checkpoint. With the key named log only checkpoints and records
// made with that key count; without it, lapse verify finds what others wrote.
func (c *consumer) newestCheckpoint(ctx context.Context, end int64) (newest newestCheckpoint, err error) {
	keys, err := logKeysOf(c.settings)
	if err != nil {
		return newest, err
	}
	err = c.client.Backward(ctx, c.settings.Topics.Log, 0, end, func(rec *schemas.Record, _ int64) (bool, error) {
		signed, of := tree.CheckpointIn(rec)
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
			newest.key = key
		}
		newest.signed, newest.of = signed, of
		return false, nil
	})
	return newest, c.silence(err)
}
