package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"lapse/audit/evidence"
	"lapse/audit/folder"
	"lapse/audit/history"
	"lapse/audit/rows"
	"lapse/audit/store"
	"lapse/audit/tree"
	"lapse/schemas"
)

// sinkFolder reads a folder that keeps topics as if it were an export: its segments for the files of partitions, and the tree that the
// auditor publishes. Both may grow meanwhile.
type sinkFolder struct {
	ctx    context.Context //nolint:containedctx // of one command; the tree's verification calls back without one
	dir    string
	client *folder.Client
	topics exportedTopics
	ends   map[string]map[int32]int64 // where the partitions of events end, as the log says last
}

// openSink finds out what a folder has: the log begins with its origin, and the log's routes name the other topics.
func openSink(ctx context.Context, dir string) (*exportFiles, error) {
	s := &sinkFolder{ctx: ctx, dir: dir, client: folder.NewClient(dir)}
	signed, err := os.ReadFile(filepath.Join(dir, folder.TreeDir, tree.CheckpointFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, invalid(fmt.Errorf("%s: the log has no checkpoint yet: nobody can verify it", dir))
	}
	if err != nil {
		return nil, err
	}
	of, err := tree.Peek(signed)
	if err != nil {
		return nil, exportFault(filepath.Join(folder.TreeDir, tree.CheckpointFile), -1, "it does not verify: %v", err)
	}
	e := &exported{Tree: &exportedTree{Log: of.Origin}}
	if err := s.findLog(e); err != nil {
		return nil, err
	}
	if e.Topics.Proofs, err = s.findProofs(e.Topics); err != nil {
		return nil, err
	}
	for _, topic := range []string{e.Topics.System, e.Topics.User, e.Topics.Proofs} {
		if topic == "" {
			continue
		}
		bounds, err := s.client.Offsets(ctx, topic)
		if err != nil {
			return nil, s.fault(topic, err)
		}
		for partition, b := range bounds {
			e.Files = append(e.Files, exportedFile{Name: sinkName(topic, partition), Topic: topic, Partition: int32(partition), First: b.First})
		}
	}
	return &exportFiles{dir: dir, manifest: e, sink: s}, nil
}

// findProofs finds the topic of commitments, which no record of the log names; none has it where nothing was committed to.
func (s *sinkFolder) findProofs(known exportedTopics) (string, error) {
	topics, err := os.ReadDir(filepath.Join(s.dir, "topics"))
	if err != nil {
		return "", err
	}
	for _, topic := range topics {
		name := topic.Name()
		bounds, err := s.client.Offsets(s.ctx, name)
		if err != nil || len(bounds) != 1 || name == known.System || name == known.User || name == known.Log {
			continue
		}
		reader := s.client.Reader(name, 0, bounds[0].First, bounds[0].End)
		for {
			rec, _, err := reader.Next(s.ctx)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return "", s.fault(name, err)
			}
			if _, _, is := rows.ChunkOf(&rec); is {
				return name, nil
			}
			if !rec.IsFence() {
				break
			}
		}
	}
	return "", nil
}

func sinkName(topic string, partition int) string {
	return fmt.Sprintf("topics/%s/%d", topic, partition)
}

// findLog finds the topic that begins as a log does, and its first route.
func (s *sinkFolder) findLog(e *exported) error {
	topics, err := os.ReadDir(filepath.Join(s.dir, "topics"))
	if err != nil {
		return err
	}
	for _, topic := range topics {
		name := topic.Name()
		bounds, err := s.client.Offsets(s.ctx, name)
		if err != nil || len(bounds) == 0 {
			continue // no topic
		}
		reader, first := s.client.Reader(name, 0, bounds[0].First, bounds[0].End), true
		for {
			rec, _, err := reader.Next(s.ctx)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return s.fault(name, err)
			}
			if rec.IsFence() {
				continue
			}
			record, err := evidence.ParseLogRecord(rec.Value)
			if err != nil || first && record.Kind != evidence.KindOrigin {
				break
			}
			first = false
			if record.Kind == evidence.KindRoute {
				route, err := record.Routing()
				if err != nil {
					return exportFault(sinkName(name, 0), -1, "the log's first route cannot be read: %v", err)
				}
				e.Topics = exportedTopics{System: route.System.Name, User: route.User.Name, Log: name}
				e.Files = []exportedFile{{Name: sinkName(name, 0), Topic: name}}
				s.topics, s.ends = e.Topics, map[string]map[int32]int64{route.System.Name: {}, route.User.Name: {}}
				return nil
			}
		}
	}
	return exportFault("topics", -1, "none of them begins as a log does")
}

// open begins to read a partition, or goes on with it, up to where it ends at this moment.
func (s *sinkFolder) open(of *exportedFile, from *verifiedFile) (*exportedLines, error) {
	bounds, err := s.client.Offsets(s.ctx, of.Topic)
	if err == nil && int(of.Partition) >= len(bounds) {
		err = &store.MissingError{Topic: of.Topic}
	}
	if err != nil {
		return nil, s.fault(of.Topic, err)
	}
	b := bounds[of.Partition]
	first := b.First
	if from != nil && from.Offset >= first && from.Offset < b.End {
		first = from.Offset + 1
	}
	reader := s.client.Reader(of.Topic, of.Partition, first, b.End)
	return &exportedLines{of: of, offset: first - 1, stored: func() (*schemas.Record, int64, error) {
		rec, offset, err := reader.Next(s.ctx)
		if err != nil {
			return nil, 0, s.fault(of.Topic, err)
		}
		return &rec, offset, nil
	}}, nil
}

// said takes note of a record of the log that says where the topics end: a partition whose last records are cut off looks as if it had
// never had them.
func (s *sinkFolder) said(rec *schemas.Record) {
	if s == nil || !rec.IsFence() || len(rec.Value) == 0 {
		return
	}
	var note history.EndsNote
	if json.Unmarshal(rec.Value, &note) != nil {
		return
	}
	for topic, ends := range map[string][]history.EndNote{s.topics.System: note.System, s.topics.User: note.User} {
		for _, end := range ends {
			s.ends[topic][int32(end[0])] = end[1]
		}
	}
}

// checkEnd wants a partition of events to have what the log says.
func (s *sinkFolder) checkEnd(of *exportedFile, last int64) error {
	if s == nil {
		return nil
	}
	if said := s.ends[of.Topic][of.Partition]; last+1 < said {
		return exportFault(of.Name, -1, "it ends with offset %d, and the log says that it had come to %d", last, said-1)
	}
	return nil
}

// fault is what a file is found to be, or the error as it is.
func (s *sinkFolder) fault(topic string, err error) error {
	var broken *folder.CorruptError
	var missing *store.MissingError
	switch {
	case errors.As(err, &broken):
		name, _ := filepath.Rel(s.dir, broken.Path)
		return exportFault(filepath.ToSlash(name), -1, "%s", broken.Why)
	case errors.As(err, &missing):
		return exportFault("topics/"+topic, -1, "it is missing")
	}
	return err
}

// treeDir is where the tree's files are.
func (x *exportFiles) treeDir() string {
	if x.sink != nil {
		return filepath.Join(x.dir, folder.TreeDir)
	}
	return x.dir
}
