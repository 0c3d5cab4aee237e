package export

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash"
	"io"
	"os"
	"path/filepath"

	"lapse/schemas"
)

// lines reads a partition line by line.
type lines struct {
	of     *File
	file   *os.File
	reader *bufio.Reader
	lines  int
	offset int64     // the last line's offset
	last   []byte    // the last line
	bytes  int64     // the number of bytes before it
	sum    hash.Hash // the hash of the bytes before it

	scanner scanner

	stored func() (*schemas.Record, int64, error) // returns the next record of a sink's partition, which has no file; nil for a file
}

func (l *lines) close() {
	if l.file != nil {
		_ = l.file.Close() // opened for reading only
	}
}

// next reads the next record. It returns io.EOF at the end of a file that matches the manifest.
func (l *lines) next() (*schemas.Record, error) {
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
		return nil, fault(l.of.Name, -1, "line %d is longer than that of any record", l.lines)
	}
	l.last = text
	rec, offset, scanned := l.scanner.scan(text)
	if !scanned {
		var line Line
		if err := json.Unmarshal(text, &line); err != nil {
			return nil, fault(l.of.Name, -1, "line %d: %v", l.lines, err)
		}
		rec, offset = line.record(l.of.Topic, l.of.Partition), line.Offset
	}
	rec.Topic, rec.Partition = l.of.Topic, l.of.Partition
	if offset != l.offset+1 {
		return nil, fault(l.of.Name, -1, "line %d: its offset is %d, and %d comes next", l.lines, offset, l.offset+1)
	}
	l.offset = offset
	return rec, nil
}

// pass moves the last line read into the part before.
func (l *lines) pass() {
	if l.sum != nil {
		l.sum.Write(l.last)
	}
	l.bytes, l.last = l.bytes+int64(len(l.last)), nil
}

// line reads the next line with its end, and returns io.EOF with a line that has none. Of a line that is too long it returns a part that shows that.
func (l *lines) line() (text []byte, err error) {
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

func (l *lines) end() error {
	switch {
	case l.offset != l.of.End-1:
		return fault(l.of.Name, -1, "it ends before the offset %d, and the manifest says %d", l.offset+1, l.of.End)
	case l.lines != l.of.Records:
		return fault(l.of.Name, -1, "it has %d lines, and the manifest says %d", l.lines, l.of.Records)
	case hex.EncodeToString(l.sum.Sum(nil)) != l.of.SHA256:
		return fault(l.of.Name, -1, "its SHA-256 is not the manifest's")
	}
	return io.EOF
}

// open begins or continues to read a partition.
func (r *Reader) open(ctx context.Context, of *File) (*lines, error) {
	if r.sink != nil {
		return r.sink.open(ctx, of, r.from[of.Name])
	}
	file, err := os.Open(filepath.Join(r.dir, of.Name))
	if err != nil {
		return nil, fault(of.Name, -1, "it is missing")
	}
	l := &lines{of: of, file: file, sum: sha256.New(), offset: of.First - 1, reader: bufio.NewReaderSize(file, 1<<18)}
	if at := r.from[of.Name]; at != nil {
		if err := l.goOn(&at.place); err != nil {
			l.close()
			return nil, fault(of.Name, -1, "go on with it: %v", err)
		}
	}
	return l, nil
}

// goOn moves a file's reader to the place up to which the file was read.
func (l *lines) goOn(at *place) error {
	if _, err := l.file.Seek(at.Bytes, io.SeekStart); err != nil {
		return err
	}
	l.lines, l.offset, l.bytes = at.Lines, at.Offset, at.Bytes
	return l.sum.(encoding.BinaryUnmarshaler).UnmarshalBinary(at.Hash)
}

// before is the place between the last line read and the line before it.
func (l *lines) before() (at place, err error) {
	at = place{Offset: l.offset - 1, Lines: l.lines - 1, Bytes: l.bytes}
	if l.sum != nil {
		at.Hash, err = l.sum.(encoding.BinaryMarshaler).MarshalBinary()
	}
	return at, err
}

func (l *lines) after() (at place, err error) {
	at = place{Offset: l.offset, Lines: l.lines, Bytes: l.bytes + int64(len(l.last))}
	if l.sum == nil {
		return at, nil
	}
	sum := sha256.New()
	state, err := l.sum.(encoding.BinaryMarshaler).MarshalBinary()
	if err == nil {
		err = sum.(encoding.BinaryUnmarshaler).UnmarshalBinary(state)
	}
	if err != nil {
		return at, err
	}
	sum.Write(l.last)
	at.Hash, err = sum.(encoding.BinaryMarshaler).MarshalBinary()
	return at, err
}
