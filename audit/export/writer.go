package export

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"os"
	"path/filepath"
	"strings"

	"lapse/audit/store"
	"lapse/audit/tree"
	"lapse/schemas"
)

// Writer writes an export, or continues one: Tree, then Partition for each, the log's first, then Close. Not safe for concurrent use.
type Writer struct {
	dir      string
	manifest Manifest
	before   *Manifest   // nil for a new export
	tree     *treeWriter // nil if the log has no checkpoint
}

// Begin begins an export of these topics in a folder that is new, empty, or an export to continue. It removes the remains of an export that was
// interrupted before it had a manifest. The error for any other folder is an *InputError.
//
// After a crash while an export is being continued, the folder has the former manifest and more lines than it says. The next export cuts
// them off.
func Begin(dir string, topics Topics) (*Writer, error) {
	w := &Writer{dir: dir, manifest: Manifest{Format: 1, Topics: topics}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, invalid("%w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, invalid("%w", err)
	}
	for _, e := range entries {
		if e.Name() == ManifestFile {
			if w.before, err = readManifest(dir); err == nil && w.before.Topics != topics {
				err = invalid("%s is an export of other topics: name a folder of its own", dir)
			}
			if err != nil {
				return nil, err
			}
			return w, nil
		}
		if name := e.Name(); !tree.IsTree(name) && name != "tile" && !isFileName(name, topics) {
			return nil, invalid("%s is not empty, and is no export: name a folder of its own", dir)
		}
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// isFileName reports whether an export of these topics has a file with this name.
func isFileName(name string, of Topics) bool {
	for _, topic := range []string{of.System, of.User, of.Log, of.Proofs} {
		if number, is := strings.CutPrefix(name, topic+"-"); is && strings.HasSuffix(number, ".jsonl") {
			return true
		}
	}
	return strings.HasPrefix(name, ".writing-")
}

// Tree begins or continues the export of the log's tree, up to its newest checkpoint; key is nil if it is not available. Without Tree the export has no
// tree, and nobody can verify it.
func (w *Writer) Tree(newest []byte, key *tree.Key) (err error) {
	x := &treeWriter{key: key, newest: newest}
	if x.of, err = tree.Peek(newest); err != nil {
		return err
	}
	x.reader.Tree = tree.New(key)
	if w.before != nil {
		x.Export, err = tree.ContinueExport(w.dir, newest)
	} else {
		x.Export, err = tree.NewExport(w.dir, newest)
	}
	w.tree = x
	return err
}

// From returns the offset from which Partition has to read: first, or the end of the export that is continued.
func (w *Writer) From(topic string, partition int32, first int64) int64 {
	if before := w.before.file(topic, partition); before != nil {
		return before.End
	}
	return first
}

// Partition writes a partition's file, or continues the export's; of names it, and its bounds. reader reads it from From on to its end. The file is on disk
// when Partition returns, its name when Close does.
func (w *Writer) Partition(ctx context.Context, of File, reader store.Reader) (err error) {
	of.Name = FileName(of.Topic, of.Partition)
	var each func(*schemas.Record) error
	if of.Topic == w.manifest.Topics.Log && of.Partition == 0 {
		each = w.tree.take
	}
	sum := sha256.New()
	var file *os.File
	if before := w.before.file(of.Topic, of.Partition); before != nil {
		file, err = w.goOn(&of, before, sum, each)
	} else {
		file, err = os.OpenFile(filepath.Join(w.dir, of.Name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	}
	if err != nil {
		return err
	}
	defer func() {
		if closed := file.Close(); err == nil {
			err = closed
		}
	}()
	out := bufio.NewWriterSize(io.MultiWriter(file, sum), 1<<18)
	err = store.Each(ctx, reader, func(rec *schemas.Record, offset int64) error {
		if each != nil {
			if err := each(rec); err != nil {
				return err
			}
		}
		text, err := LineOf(rec, offset).Text()
		if err == nil {
			_, err = out.Write(text)
		}
		of.Records++
		return err
	})
	if err != nil {
		return err
	}
	if err := errors.Join(out.Flush(), file.Sync()); err != nil {
		return err
	}
	of.SHA256 = hex.EncodeToString(sum.Sum(nil))
	w.manifest.Files = append(w.manifest.Files, of)
	return nil
}

// goOn reads the exported lines of a partition's file, passes them to each, and leaves the file open at their end. It checks them against the manifest.
func (w *Writer) goOn(of, before *File, sum hash.Hash, each func(*schemas.Record) error) (_ *os.File, err error) {
	switch {
	case of.End < before.End:
		return nil, fault(before.Name, -1, "it has records up to the offset %d, and the topic up to %d: the topic was cut, or made again", before.End, of.End)
	case of.First > before.End:
		return nil, invalid("%s ends at the offset %d, and the topic has forgotten what is below %d: name another folder, and keep this one", before.Name, before.End, of.First)
	}
	of.First, of.Records = before.First, before.Records
	file, err := os.OpenFile(filepath.Join(w.dir, before.Name), os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	l, end := &lines{of: before, reader: bufio.NewReaderSize(file, 1<<18)}, int64(0)
	for range before.Records {
		text, err := l.line()
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		sum.Write(text)
		end += int64(len(text))
		if each == nil || err != nil {
			continue
		}
		var line Line
		if err := json.Unmarshal(text, &line); err != nil {
			return nil, fault(before.Name, -1, "%v", err)
		}
		if err := each(line.record(of.Topic, of.Partition)); err != nil {
			return nil, err
		}
	}
	if hex.EncodeToString(sum.Sum(nil)) != before.SHA256 {
		return nil, fault(before.Name, -1, "its SHA-256 is not the manifest's")
	}
	if err := file.Truncate(end); err != nil {
		return nil, err
	}
	_, err = file.Seek(end, io.SeekStart)
	return file, err
}

// Close ends the export, and returns its manifest, which is written last.
func (w *Writer) Close() (*Manifest, error) {
	var err error
	if w.manifest.Tree, err = w.tree.close(); err != nil {
		return nil, err
	}
	return &w.manifest, w.manifest.Write(w.dir)
}
