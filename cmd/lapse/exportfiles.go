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
	"hash"
	"io"
	"os"
	"path/filepath"

	"lapse/audit/evidence"
	"lapse/audit/tree"
	"lapse/audit/verify"
	"lapse/schemas"
)

func exportFault(file string, leaf int64, format string, args ...any) error {
	return &tree.Fault{File: file, Leaf: leaf, What: fmt.Sprintf(format, args...)}
}

// longestText bounds how much of a manifest or of a line is read at once, because the folder's maker may intend to fill the memory. No
// topic's record makes a longer line.
const longestText = 64 << 20

// readManifest reads an export's manifest, and requires the form in which lapse writes it.
func readManifest(dir string) (*exported, error) {
	file, err := os.Open(filepath.Join(dir, exportManifest))
	if err != nil {
		return nil, invalid(fmt.Errorf("%w: a folder without it is no export", err))
	}
	defer func() { _ = file.Close() }() // opened for reading only
	text, err := io.ReadAll(io.LimitReader(file, longestText+1))
	if err != nil {
		return nil, err
	}
	if len(text) > longestText {
		return nil, exportFault(exportManifest, -1, "it is larger than any manifest")
	}
	e := &exported{}
	if err := json.Unmarshal(text, e); err != nil {
		return nil, exportFault(exportManifest, -1, "%v", err)
	}
	again, err := e.text()
	if err != nil {
		return nil, err
	}
	switch {
	case !bytes.Equal(again, text) || e.Format != 1 || len(e.Files) == 0:
		return nil, exportFault(exportManifest, -1, "it is not as lapse writes it")
	case e.Tree == nil:
		return nil, invalid(fmt.Errorf("%s: the log had no checkpoint when this was exported: nobody can verify it", dir))
	}
	for i, f := range e.Files {
		ours := f.Topic == e.Topics.System || f.Topic == e.Topics.User || f.Topic == e.Topics.Proofs
		if i == 0 {
			ours = f.Topic == e.Topics.Log && f.Partition == 0
		}
		if !ours || f.Name != exportName(f.Topic, f.Partition) {
			return nil, exportFault(exportManifest, -1, "%s is not the file of a topic's partition", f.Name)
		}
	}
	return e, nil
}

// exportFiles reads the files of the topics' partitions next to the tree.
type exportFiles struct {
	dir      string
	manifest *exported
	sink     *sinkFolder // the folder whose partitions are read instead of an export's files; nil if there is none
	log      *exportedLines
	order    verify.Order
	broken   string // the first break of the order
	events   int    // the number of lines of the topics of events
	clock    verify.Clock

	// For a verification that continues a former one.
	before      *verifiedExport // nil to start from the beginning
	from        map[string]*verifiedFile
	route       *evidence.Route // the route in force at the beginning
	routeRecord []byte          // the record of the route in force
	below       int64           // the size of the checkpoint from which the next verification can continue; 0 if it is not wanted
	came        *verifiedExport // what it saves for the next one; nil if that is not wanted, or not reached yet
}

func (x *exportFiles) close() {
	if x.log != nil {
		x.log.close()
	}
}

// checkpointFile is the name of the file with the newest checkpoint.
func (x *exportFiles) checkpointFile() string { return filepath.Join(x.treeDir(), tree.CheckpointFile) }

// entry checks that the log's file has a leaf's record.
func (x *exportFiles) entry(leaf int64, entry []byte) (err error) {
	if x.log == nil {
		if x.log, err = x.open(&x.manifest.Files[0]); err != nil {
			return err
		}
	}
	for {
		rec, err := x.log.next()
		if errors.Is(err, io.EOF) {
			return exportFault(x.log.of.Name, leaf, "it ends before this leaf's record")
		}
		if err != nil {
			return err
		}
		x.sink.said(rec)
		index, placed := tree.IndexOf(rec)
		same := bytes.Equal(tree.Entry(rec.Value), entry)
		switch {
		case same && (!placed || index == leaf):
			return nil
		case placed && index == leaf:
			return exportFault(x.log.of.Name, leaf, "line %d: the record is not the tree's", x.log.lines)
		case placed && index > leaf:
			return exportFault(x.log.of.Name, leaf, "line %d: this leaf's record is missing before it", x.log.lines)
		}
	}
}

// former checks that the file with the former checkpoints has all of its lines.
func (x *exportFiles) former() error {
	file, err := os.Open(filepath.Join(x.dir, tree.FormerFile))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // opened for reading only
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return err
	}
	if hex.EncodeToString(sum.Sum(nil)) != x.manifest.Tree.Former {
		return exportFault(tree.FormerFile, -1, "its SHA-256 is not the manifest's")
	}
	return nil
}

// rest reads the log's file to its end, and returns how many records follow the tree's last leaf.
func (x *exportFiles) rest() (later int, err error) {
	for {
		rec, err := x.log.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
		x.sink.said(rec)
		if isLogRecord(rec) {
			later++
		}
	}
	return later, nil
}

// newOrder begins to check the order that the topics of events promise.
func (x *exportFiles) newOrder() {
	x.events, x.broken = 0, ""
	x.order = verify.Order{System: x.manifest.Topics.System, Broken: func(what string) {
		if x.broken == "" {
			x.broken = what
		}
	}}
}

// next reads the next record of a partition of events or commitments. It returns io.EOF at an end that is as it must be.
func (x *exportFiles) next(of *exportedFile, lines *exportedLines) (*schemas.Record, error) {
	rec, err := lines.next()
	if errors.Is(err, io.EOF) {
		if end := x.sink.checkEnd(of, lines.offset); end != nil {
			return nil, end
		}
	}
	if err != nil || of.Topic == x.manifest.Topics.Proofs {
		return rec, err
	}
	x.events++
	if x.order.Next(of.Topic, of.Partition, rec, lines.offset); x.broken != "" {
		return nil, exportFault(of.Name, -1, "line %d: %s", lines.lines, x.broken)
	}
	return rec, nil
}

// alone reads the topics' files one by one, because a fault within a file is more precise than a mismatch with the log.
func (x *exportFiles) alone(ctx context.Context) error {
	x.newOrder()
	for i := range x.manifest.Files[1:] {
		of := &x.manifest.Files[1+i]
		lines, err := x.open(of)
		if err != nil {
			return err
		}
		for err == nil && ctx.Err() == nil {
			_, err = x.next(of, lines)
		}
		lines.close()
		if !errors.Is(err, io.EOF) {
			return err
		}
	}
	return nil
}

// each passes every record of a partition's file, to its end, and returns the end's offset.
func (x *exportFiles) each(
	ctx context.Context, of *exportedFile, take func(rec *schemas.Record, lines *exportedLines) error,
) (last int64, err error) {
	lines, err := x.open(of)
	if err != nil {
		return 0, err
	}
	defer lines.close()
	for {
		if err := ctx.Err(); err != nil {
			return 0, context.Cause(ctx)
		}
		rec, err := lines.next()
		if errors.Is(err, io.EOF) {
			return lines.offset, nil
		}
		if err == nil {
			err = take(rec, lines)
		}
		if err != nil {
			return 0, err
		}
	}
}

func (x *exportFiles) open(of *exportedFile) (*exportedLines, error) {
	if x.sink != nil {
		return x.sink.open(of, x.from[of.Name])
	}
	file, err := os.Open(filepath.Join(x.dir, of.Name))
	if err != nil {
		return nil, exportFault(of.Name, -1, "it is missing")
	}
	l := &exportedLines{of: of, file: file, sum: sha256.New(), offset: of.First - 1, reader: bufio.NewReaderSize(file, 1<<18)}
	if at := x.from[of.Name]; at != nil {
		if err := l.goOn(&at.linePosition); err != nil {
			l.close()
			return nil, exportFault(of.Name, -1, "go on with it: %v", err)
		}
	}
	return l, nil
}

// exportedLines reads a file of an export line by line.
type exportedLines struct {
	of     *exportedFile
	file   *os.File
	reader *bufio.Reader
	lines  int
	offset int64     // the last line's offset
	last   []byte    // the last line
	bytes  int64     // the number of bytes before it
	sum    hash.Hash // the hash of the bytes before it

	scanner lineScanner

	stored func() (*schemas.Record, int64, error) // returns the next record of a sink's partition, which has no file; nil for a file
}

func (l *exportedLines) close() {
	if l.file != nil {
		_ = l.file.Close() // opened for reading only
	}
}

// next reads the next record. It returns io.EOF at the end of a file that matches the manifest.
func (l *exportedLines) next() (*schemas.Record, error) {
	if l.stored != nil {
		rec, offset, err := l.stored()
		if err == nil {
			l.lines, l.offset = l.lines+1, offset
		}
		return rec, err
	}
	l.pass()
	text, err := l.line()
	switch {
	case errors.Is(err, io.EOF) && len(text) == 0:
		return nil, l.end()
	case err != nil && !errors.Is(err, io.EOF):
		return nil, err
	}
	l.lines++
	if len(text) > longestText {
		return nil, exportFault(l.of.Name, -1, "line %d is longer than that of any record", l.lines)
	}
	l.last = text
	rec, offset, scanned := l.scanner.scan(text)
	if !scanned {
		var line exportedRecord
		if err := json.Unmarshal(text, &line); err != nil {
			return nil, exportFault(l.of.Name, -1, "line %d: %v", l.lines, err)
		}
		rec, offset = line.record(l.of.Topic, l.of.Partition), line.Offset
	}
	rec.Topic, rec.Partition = l.of.Topic, l.of.Partition
	if offset != l.offset+1 {
		return nil, exportFault(l.of.Name, -1, "line %d: its offset is %d, and %d comes next", l.lines, offset, l.offset+1)
	}
	l.offset = offset
	return rec, nil
}

// pass moves the last line read into the part before.
func (l *exportedLines) pass() {
	if l.sum != nil {
		l.sum.Write(l.last)
	}
	l.bytes, l.last = l.bytes+int64(len(l.last)), nil
}

// record converts a line to a record.
func (r *exportedRecord) record(topic string, partition int32) *schemas.Record {
	rec := &schemas.Record{Topic: topic, Partition: partition, Key: r.Key, Value: r.Value, Time: r.Time}
	for _, h := range r.Headers {
		rec.Headers = append(rec.Headers, schemas.Header{Key: h.Name, Value: h.Value})
	}
	return rec
}

// line reads the next line with its end, and returns io.EOF with a line that has none. Of a line that is too long it returns a part that shows that.
func (l *exportedLines) line() (text []byte, err error) {
	for len(text) <= longestText {
		var part []byte
		part, err = l.reader.ReadSlice('\n')
		text = append(text, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return text, err
		}
	}
	return text, nil
}

func (l *exportedLines) end() error {
	switch {
	case l.offset != l.of.End-1:
		return exportFault(l.of.Name, -1, "it ends before the offset %d, and the manifest says %d", l.offset+1, l.of.End)
	case l.lines != l.of.Records:
		return exportFault(l.of.Name, -1, "it has %d lines, and the manifest says %d", l.lines, l.of.Records)
	case hex.EncodeToString(l.sum.Sum(nil)) != l.of.SHA256:
		return exportFault(l.of.Name, -1, "its SHA-256 is not the manifest's")
	}
	return io.EOF
}
