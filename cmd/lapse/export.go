package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"lapse/audit/store"
	"lapse/internal/durable"
	"lapse/schemas"
)

// exportManifest is the name of the manifest, which is written last: a folder without it is not an export.
const exportManifest = "export.json"

// exported is the manifest.
type exported struct {
	Format int            `json:"format"` // the files' format: 1
	Topics exportedTopics `json:"topics"`
	Files  []exportedFile `json:"files"` // the log's first, then the topics'
	Tree   *exportedTree  `json:"tree"`  // null if the log has no checkpoint yet
}

type exportedTopics struct {
	System string `json:"system"`
	User   string `json:"user"`
	Log    string `json:"log"`
	Proofs string `json:"proofs"` // commitments to single rows
}

// exportedFile is one partition, from First up to but not including End.
type exportedFile struct {
	Name      string `json:"name"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	First     int64  `json:"first"`
	End       int64  `json:"end"`
	Records   int    `json:"records"`
	SHA256    string `json:"sha256"` // the file's
}

// exportedRecord is a line: a record as the topic has it, fences included.
type exportedRecord struct {
	Offset  int64            `json:"offset"`
	Time    time.Time        `json:"time"`
	Headers []exportedHeader `json:"headers"`
	Key     exportedBytes    `json:"key"`
	Value   exportedBytes    `json:"value"`
}

type exportedHeader struct {
	Name  string        `json:"name"`
	Value exportedBytes `json:"value"`
}

// exportedBytes is a string if the bytes are UTF-8, otherwise {"base64": …}, and null if there are none.
type exportedBytes []byte

func (b exportedBytes) MarshalJSON() ([]byte, error) {
	switch {
	case b == nil:
		return []byte("null"), nil
	case utf8.Valid(b):
		return unescaped(string(b))
	default:
		return json.Marshal(map[string][]byte{"base64": b})
	}
}

// UnmarshalJSON reads what MarshalJSON writes.
func (b *exportedBytes) UnmarshalJSON(text []byte) error {
	var s *string
	if json.Unmarshal(text, &s) == nil {
		if *b = nil; s != nil {
			*b = []byte(*s)
		}
		return nil
	}
	var coded map[string][]byte
	err := json.Unmarshal(text, &coded)
	*b = coded["base64"]
	return err
}

// unescaped writes JSON with <, > and & unescaped.
func unescaped(v any) ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimRight(out.Bytes(), "\n"), err
}

// export writes every record of the topics and of the log, up to their present ends, to files in a folder. It reads the log's end
// first, so that the topics already have everything that the log speaks of. The folder is new, empty, or an export to continue: see begunExport.
func (c *consumer) export(cmd *cobra.Command, dir string) (err error) {
	for _, other := range []string{"cause", "policy", "table", "since", "until", "key", "limit", "follow"} {
		if cmd.Flags().Changed(other) {
			return wrongUsage("--export and --%s exclude each other: an export has everything", other)
		}
	}
	before, err := c.begunExport(dir)
	if err != nil {
		return err
	}
	if c.client, err = c.newClient(c.settings); err != nil {
		return err
	}
	defer c.client.Close()
	ctx, topics := cmd.Context(), &c.settings.Topics
	all := exported{Format: 1, Topics: exportedTopics{topics.System, topics.User, topics.Log, topics.Proofs}}
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
	logTree, err := c.newTreeExport(ctx, dir, readers[0], before)
	if err != nil {
		return fmt.Errorf("export the log's tree: %w", err)
	}
	records := 0
	for _, l := range readers {
		var each func(*schemas.Record) error
		if l == readers[0] {
			each = logTree.take
		}
		file, err := c.exportPartition(ctx, dir, l, before.file(l.topic, l.partition), each)
		if err != nil {
			return fmt.Errorf("export %s/%d: %w", l.topic, l.partition, err)
		}
		all.Files, records = append(all.Files, *file), records+file.Records
	}
	if all.Tree, err = logTree.close(); err != nil {
		return err
	}
	text, err := all.text()
	if err != nil {
		return err
	}
	if err := durable.Write(filepath.Join(dir, exportManifest), text); err != nil {
		return fmt.Errorf("write the export's manifest: %w", err)
	}
	if c.asJSON {
		err = c.printJSON(all)
	} else {
		_, err = fmt.Fprintf(c.out, "%s of %s are in %s%s\n", counted(records, "record"), counted(len(all.Files), "partition"), dir, all.Tree.told())
	}
	return errors.Join(err, c.order.verdict())
}

// text is the manifest's file content.
func (e *exported) text() ([]byte, error) {
	text, err := json.MarshalIndent(e, "", "  ")
	return append(text, '\n'), err
}

func exportName(topic string, partition int32) string {
	return fmt.Sprintf("%s-%d.jsonl", topic, partition)
}

// exportPartition writes a partition's file, or continues the export's, and passes each record to each, if that is not nil.
func (c *consumer) exportPartition(
	ctx context.Context, dir string, l *partitionReader, before *exportedFile, each func(*schemas.Record) error,
) (_ *exportedFile, err error) {
	f := &exportedFile{
		Name: exportName(l.topic, l.partition), Topic: l.topic, Partition: l.partition, First: l.first, End: l.end,
	}
	sum := sha256.New()
	var file *os.File
	if before == nil {
		file, err = os.OpenFile(filepath.Join(dir, f.Name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	} else {
		f.First, f.Records = before.First, before.Records
		file, err = c.goOn(dir, l, before, sum, each)
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if closed := file.Close(); err == nil {
			err = closed
		}
	}()
	out := bufio.NewWriterSize(io.MultiWriter(file, sum), 1<<18)
	err = c.each(ctx, l, func(record *schemas.Record, offset int64) error {
		if l.topic != c.settings.Topics.Proofs { // not in any order: see package rows
			c.order.Next(l.topic, l.partition, record, offset)
		}
		if each != nil {
			if err := each(record); err != nil {
				return err
			}
		}
		line, err := unescaped(lineOf(record, offset))
		if err == nil {
			_, err = out.Write(append(line, '\n'))
		}
		f.Records++
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(out.Flush(), file.Sync()); err != nil {
		return nil, err
	}
	f.SHA256 = hex.EncodeToString(sum.Sum(nil))
	return f, nil
}

func lineOf(r *schemas.Record, offset int64) *exportedRecord {
	line := &exportedRecord{Offset: offset, Time: r.Time.UTC(), Headers: []exportedHeader{}, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		line.Headers = append(line.Headers, exportedHeader{h.Key, h.Value})
	}
	return line
}
