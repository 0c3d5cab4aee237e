package main

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"

	"lapse/audit/tree"
	"lapse/schemas"
)

// begunExport returns the manifest of the export in a folder. It returns nil for a new or empty folder, and for one with the remains of an
// export that was interrupted before it had a manifest; it removes those.
//
// After a crash while an export is being continued, the folder has the former manifest and more lines than it says. The next export cuts
// them off.
func (c *consumer) begunExport(dir string) (*exported, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, invalid(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, invalid(err)
	}
	topics := &c.settings.Topics
	for _, e := range entries {
		if e.Name() == exportManifest {
			before, err := readManifest(dir)
			if err == nil && before.Topics != (exportedTopics{topics.System, topics.User, topics.Log, topics.Proofs}) {
				err = invalid(fmt.Errorf("%s is an export of other topics: name a folder of its own", dir))
			}
			return before, err
		}
		if name := e.Name(); !tree.IsTree(name) && name != "tile" && !isExportName(name, topics.System, topics.User, topics.Log, topics.Proofs) {
			return nil, invalid(fmt.Errorf("%s is not empty, and is no export: name a folder of its own", dir))
		}
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// isExportName reports whether an export has a file with this name.
func isExportName(name string, topics ...string) bool {
	for _, topic := range topics {
		if number, is := strings.CutPrefix(name, topic+"-"); is && strings.HasSuffix(number, ".jsonl") {
			return true
		}
	}
	return strings.HasPrefix(name, ".writing-")
}

// file returns the manifest's entry of a partition; nil without an entry or a manifest.
func (e *exported) file(topic string, partition int32) *exportedFile {
	if e == nil {
		return nil
	}
	for i := range e.Files {
		if f := &e.Files[i]; f.Topic == topic && f.Partition == partition {
			return f
		}
	}
	return nil
}

// goOn reads the exported lines of a partition's file, passes them to each, and leaves the file open at their end. It checks them against the manifest.
func (c *consumer) goOn(dir string, l *partitionReader, before *exportedFile, sum hash.Hash, each func(*schemas.Record) error) (_ *os.File, err error) {
	switch {
	case l.end < before.End:
		return nil, exportFault(before.Name, -1, "it has records up to the offset %d, and the topic up to %d: the topic was cut, or made again", before.End, l.end)
	case l.first > before.End:
		return nil, invalid(fmt.Errorf("%s ends at the offset %d, and the topic has forgotten what is below %d: name another folder, and keep this one", before.Name, before.End, l.first))
	}
	file, err := os.OpenFile(filepath.Join(dir, before.Name), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	lines, end := &exportedLines{of: before, reader: bufio.NewReaderSize(file, 1<<18)}, int64(0)
	for range before.Records {
		text, err := lines.line()
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		sum.Write(text)
		end += int64(len(text))
		if each == nil || err != nil {
			continue
		}
		var line exportedRecord
		if err := json.Unmarshal(text, &line); err != nil {
			return nil, exportFault(before.Name, -1, "%v", err)
		}
		if err := each(line.record(l.topic, l.partition)); err != nil {
			return nil, err
		}
	}
	if hex.EncodeToString(sum.Sum(nil)) != before.SHA256 {
		return nil, exportFault(before.Name, -1, "its SHA-256 is not the manifest's")
	}
	if err := file.Truncate(end); err != nil {
		return nil, err
	}
	_, err = file.Seek(end, io.SeekStart)
	l.reader = c.client.Reader(l.topic, l.partition, before.End, l.end)
	return file, err
}
