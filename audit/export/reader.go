package export

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"lapse/audit/evidence"
	"lapse/audit/folder"
	"lapse/audit/tree"
	"lapse/audit/verify"
	"lapse/schemas"
)

// Reader reads an export, or a folder that keeps topics. Verification is Resume, if a former one is continued, then Tree, Account, and Save. A
// difference from what the log's key has signed is a *tree.Fault. Not safe for concurrent use.
type Reader struct {
	// Manifest is the export's, and for a folder that keeps topics it has names and first offsets, and no ends, counts or checksums.
	Manifest *Manifest
	// Keep says that Account keeps what Save writes.
	Keep bool

	dir    string
	sink   *sink // the folder whose partitions are read instead of an export's files; nil if there is none
	log    *lines
	order  verify.Order
	broken string // the first break of the order
	events int    // the number of lines of the topics of events
	clock  verify.Clock
	lost   map[string]evidence.Reach // the topics that lost records according to the log, and up to where

	// For a verification that continues a former one.
	before      *State // nil to start from the beginning
	from        map[string]*fileState
	route       *evidence.Route // the route in force at the beginning
	routeRecord []byte          // the record of the route in force
	size        int64           // the size of the newest checkpoint
	came        *State          // what Save writes; nil if that is not wanted, or not reached yet
}

// Open opens an export, or a folder that keeps topics. The error for another folder, or one without a checkpoint, is an *InputError.
func Open(ctx context.Context, dir string) (*Reader, error) {
	r := &Reader{dir: dir, lost: map[string]evidence.Reach{}}
	var err error
	if folder.Is(dir) {
		r.sink = &sink{dir: dir, client: folder.NewClient(dir)}
		r.Manifest, err = r.sink.manifest(ctx)
	} else {
		r.Manifest, err = readManifest(dir)
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Close closes the files.
func (r *Reader) Close() {
	if r.log != nil {
		r.log.close()
	}
}

// KeepsTopics reports whether the folder keeps topics. Such a folder may grow while it is read.
func (r *Reader) KeepsTopics() bool { return r.sink != nil }

// treeDir is the folder of the tree's files.
func (r *Reader) treeDir() string {
	if r.sink != nil {
		return filepath.Join(r.dir, folder.TreeDir)
	}
	return r.dir
}

// Checkpoint is the newest checkpoint. Nothing of it is verified.
func (r *Reader) Checkpoint() ([]byte, error) {
	return os.ReadFile(filepath.Join(r.treeDir(), tree.CheckpointFile))
}

// Each passes every record of a partition's file, to its end, and returns the end's offset. A file that differs from the manifest is a fault.
func (r *Reader) Each(ctx context.Context, of *File, take func(rec *schemas.Record, offset int64) error) (last int64, err error) {
	l, err := r.open(ctx, of)
	if err != nil {
		return 0, err
	}
	defer l.close()
	for {
		if err := ctx.Err(); err != nil {
			return 0, context.Cause(ctx)
		}
		rec, err := l.next()
		if errors.Is(err, io.EOF) {
			return l.offset, nil
		}
		if err == nil {
			err = take(rec, l.offset)
		}
		if err != nil {
			return 0, err
		}
	}
}

// Tree verifies the log's tree with the key, the checkpoints and the witnesses of checked, and the log's file against the tree; it sets the rest of
// checked. later is how many of the log's records follow the newest checkpoint. If the tree verifies and what is beside it does not, it returns
// both the tree and the fault.
func (r *Reader) Tree(ctx context.Context, checked *tree.Folder) (of *tree.Verified, later int, err error) {
	checked.Files, checked.Growing = os.DirFS(r.treeDir()), r.sink != nil
	if r.before != nil {
		checked.From = r.before.Leaf
	}
	checked.Entry = func(leaf int64, entry []byte) error {
		if bytes.HasPrefix(entry, []byte(`{"kind":"gap"`)) {
			r.gap(entry)
		}
		return r.entry(ctx, leaf, entry)
	}
	if of, err = checked.Verify(ctx); err != nil {
		return nil, 0, err
	}
	r.size = of.Size
	if r.sink == nil {
		if t := r.Manifest.Tree; t.Log != of.Origin || t.Records != of.Size || t.Root != of.Root.String() || !t.under(of.By) {
			return of, 0, fault(ManifestFile, -1, "it names another tree than the checkpoint, or another key")
		}
		if err := errors.Join(r.former(), r.others()); err != nil {
			return of, 0, err
		}
	}
	later, err = r.rest()
	return of, later, err
}

// entry checks that the log's file has a leaf's record.
func (r *Reader) entry(ctx context.Context, leaf int64, entry []byte) (err error) {
	if r.log == nil {
		if r.log, err = r.open(ctx, &r.Manifest.Files[0]); err != nil {
			return err
		}
	}
	for {
		rec, err := r.log.next()
		if errors.Is(err, io.EOF) {
			return fault(r.log.of.Name, leaf, "it ends before this leaf's record")
		}
		if err != nil {
			return err
		}
		r.sink.said(rec)
		index, placed := tree.IndexOf(rec)
		same := bytes.Equal(tree.Entry(rec.Value), entry)
		switch {
		case same && (!placed || index == leaf):
			return nil
		case placed && index == leaf:
			return fault(r.log.of.Name, leaf, "line %d: the record is not the tree's", r.log.lines)
		case placed && index > leaf:
			return fault(r.log.of.Name, leaf, "line %d: this leaf's record is missing before it", r.log.lines)
		}
	}
}

// gap keeps the topic that lost records according to a gap in the log.
func (r *Reader) gap(entry []byte) {
	record, err := evidence.ParseLogRecord(entry)
	if err != nil {
		return
	}
	c, is := record.Content.(*evidence.MarkerContent)
	if is && c.Marker.Reason == evidence.ReasonTopic && r.lost[c.Marker.Topic].Before(c.Marker.To) {
		r.lost[c.Marker.Topic] = c.Marker.To
	}
}

// former checks that the file with the former checkpoints has all of its lines.
func (r *Reader) former() error {
	file, err := os.Open(filepath.Join(r.dir, tree.FormerFile))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // opened for reading only
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != r.Manifest.Tree.Former {
		return fault(tree.FormerFile, -1, "its SHA-256 is not the manifest's")
	}
	return nil
}

// others looks for files that do not belong to the export.
func (r *Reader) others() error {
	known := map[string]bool{ManifestFile: true}
	for _, f := range r.Manifest.Files {
		known[f.Name] = true
	}
	return filepath.WalkDir(r.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(r.dir, path)
		if name = filepath.ToSlash(name); err == nil && !known[name] && !tree.IsTree(name) {
			err = fault(name, -1, "the export has no such file")
		}
		return err
	})
}

// rest reads the log's file to its end, and returns how many records follow the tree's last leaf.
func (r *Reader) rest() (later int, err error) {
	for {
		rec, err := r.log.next()
		if errors.Is(err, io.EOF) {
			return later, nil
		}
		if err != nil {
			return 0, err
		}
		r.sink.said(rec)
		if evidence.LogRecordIn(rec) != nil {
			later++
		}
	}
}
