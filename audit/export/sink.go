package export

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

// sink reads a folder that keeps topics like an export: its segments in place of the partitions' files, and the tree that the
// auditor publishes. Both may grow while it reads.
type sink struct {
	dir    string
	client *folder.Client
	topics Topics
	ends   map[string]map[int32]int64 // the ends of the partitions of events according to the log's last word
}

// manifest identifies the topics of a folder: the log begins with its origin, and the log's routes name the other topics.
func (s *sink) manifest(ctx context.Context) (*Manifest, error) {
	signed, err := os.ReadFile(filepath.Join(s.dir, folder.TreeDir, tree.CheckpointFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, invalid("%s: the log has no checkpoint yet: nobody can verify it", s.dir)
	}
	if err != nil {
		return nil, err
	}
	of, err := tree.Peek(signed)
	if err != nil {
		return nil, fault(filepath.Join(folder.TreeDir, tree.CheckpointFile), -1, "it does not verify: %v", err)
	}
	m := &Manifest{Tree: &Tree{Log: of.Origin}}
	if err := s.findLog(ctx, m); err != nil {
		return nil, err
	}
	if m.Topics.Proofs, err = s.findProofs(ctx, m.Topics); err != nil {
		return nil, err
	}
	for _, topic := range []string{m.Topics.System, m.Topics.User, m.Topics.Proofs} {
		if topic == "" {
			continue
		}
		bounds, err := s.client.Offsets(ctx, topic)
		if err != nil {
			return nil, s.fault(topic, err)
		}
		for partition, b := range bounds {
			m.Files = append(m.Files, File{Name: sinkName(topic, partition), Topic: topic, Partition: int32(partition), First: b.First})
		}
	}
	return m, nil
}

// findProofs finds the topic of commitments, which no log record names. There is none if nothing was committed to.
func (s *sink) findProofs(ctx context.Context, known Topics) (string, error) {
	topics, err := os.ReadDir(filepath.Join(s.dir, "topics"))
	if err != nil {
		return "", err
	}
	for _, topic := range topics {
		name := topic.Name()
		bounds, err := s.client.Offsets(ctx, name)
		if err != nil || len(bounds) != 1 || name == known.System || name == known.User || name == known.Log {
			continue
		}
		reader := s.client.Reader(name, 0, bounds[0].First, bounds[0].End)
		for {
			rec, _, err := reader.Next(ctx)
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

// findLog finds the topic that begins like a log, and its first route.
func (s *sink) findLog(ctx context.Context, m *Manifest) error {
	topics, err := os.ReadDir(filepath.Join(s.dir, "topics"))
	if err != nil {
		return err
	}
	for _, topic := range topics {
		name := topic.Name()
		bounds, err := s.client.Offsets(ctx, name)
		if err != nil || len(bounds) == 0 {
			continue // not a topic
		}
		reader, first := s.client.Reader(name, 0, bounds[0].First, bounds[0].End), true
		for {
			rec, _, err := reader.Next(ctx)
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
					return fault(sinkName(name, 0), -1, "the log's first route cannot be read: %v", err)
				}
				m.Topics = Topics{System: route.System.Name, User: route.User.Name, Log: name}
				m.Files = []File{{Name: sinkName(name, 0), Topic: name}}
				s.topics, s.ends = m.Topics, map[string]map[int32]int64{route.System.Name: {}, route.User.Name: {}}
				return nil
			}
		}
	}
	return fault("topics", -1, "none of them begins as a log does")
}

// open begins or continues to read a partition, up to its present end.
func (s *sink) open(ctx context.Context, of *File, from *fileState) (*lines, error) {
	bounds, err := s.client.Offsets(ctx, of.Topic)
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
	return &lines{of: of, offset: first - 1, stored: func() (*schemas.Record, int64, error) {
		rec, offset, err := reader.Next(ctx)
		if err != nil {
			return nil, 0, s.fault(of.Topic, err)
		}
		return &rec, offset, nil
	}}, nil
}

// said keeps the ends of the topics from a log record that states them: a partition whose last records were cut off looks as if they had
// never existed.
func (s *sink) said(rec *schemas.Record) {
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

// checkEnd checks that a partition of events has all records that the log states.
func (s *sink) checkEnd(of *File, last int64) error {
	if s == nil {
		return nil
	}
	if said := s.ends[of.Topic][of.Partition]; last+1 < said {
		return fault(of.Name, -1, "it ends with offset %d, and the log says that it had come to %d", last, said-1)
	}
	return nil
}

// fault turns an error about a file into a fault; it returns other errors unchanged.
func (s *sink) fault(topic string, err error) error {
	var broken *folder.CorruptError
	var missing *store.MissingError
	switch {
	case errors.As(err, &broken):
		name, _ := filepath.Rel(s.dir, broken.Path)
		return fault(filepath.ToSlash(name), -1, "%s", broken.Why)
	case errors.As(err, &missing):
		return fault("topics/"+topic, -1, "it is missing")
	}
	return err
}
