package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"lapse/audit/evidence"
	"lapse/audit/history"
	"lapse/internal/durable"
	"lapse/replication"
)

// EventFile is where Copy puts events: a file, or a stream such as standard output. Each is a line, the value that its records in
// the topics have.
//
//	crash before Sync    lines may be missing from some point on, and the last one may be torn: OpenEventFile cuts it off, and Copy
//	                     writes what is missing
//	crash after Sync     what was written is on disk
//
// Beside a file stands another one, with .reached behind its name: up to where the file has everything, whether or not there was an event.
//
//	crash before it is written    it says less than is true: Copy may refuse to go on where nothing is missing
//
// Not safe for concurrent use. A second process with the same file is refused.
type EventFile struct {
	name  string
	file  *os.File // nil for a stream
	out   *bufio.Writer
	last  *evidence.EventValue // of the file when it was opened; nil for none
	upTo  *evidence.Reach      // everything below is in the file; nil: nobody has said so
	dirty bool
}

const (
	eventBuffer = 1 << 18
	tailBlock   = 1 << 16
	longestLine = 1 << 20 // more than any event has
)

// NewEventStream writes to w, of which nothing can be read back.
func NewEventStream(name string, w io.Writer) *EventFile {
	return &EventFile{name: name, out: bufio.NewWriterSize(w, eventBuffer)}
}

// OpenEventFile opens a file, or makes it, and goes on behind its last whole line. What is no file, such as a pipe or /dev/null, is a stream.
func OpenEventFile(name string) (_ *EventFile, err error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600) // it says who was deleted
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return NewEventStream(name, file), nil
	}
	if err := lockFile(file); err != nil {
		return nil, fmt.Errorf("lock %s: %w: another process writes to it: stop that one, or name another file", name, err)
	}
	f := &EventFile{name: name, file: file, out: bufio.NewWriterSize(file, eventBuffer)}
	line, end, err := lastLine(file)
	if err != nil {
		return nil, fmt.Errorf("read the end of %s: %w", name, err)
	}
	if len(line) > 0 {
		if f.last, err = evidence.ParseEventValue(line); err != nil {
			return nil, fmt.Errorf("read the end of %s: %w: name another file", name, err)
		}
	}
	if f.upTo, err = readReached(name + reachedFile); err != nil {
		return nil, err
	}
	if err := file.Truncate(end); err != nil {
		return nil, err
	}
	_, err = file.Seek(end, io.SeekStart)
	return f, err
}

// lastLine is the last whole line of a file, and where it ends.
func lastLine(file *os.File) (line []byte, end int64, err error) {
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, 0, err
	}
	var tail []byte
	for at := size; ; {
		whole := bytes.LastIndexByte(tail, '\n')
		if whole >= 0 {
			begin := bytes.LastIndexByte(tail[:whole], '\n')
			if begin >= 0 || at == 0 {
				return tail[begin+1 : whole], at + int64(whole) + 1, nil
			}
		}
		switch {
		case at == 0:
			return nil, 0, nil
		case len(tail) > 2*longestLine:
			return nil, 0, errors.New("it has no lines of events: name another file")
		}
		n := min(tailBlock, at)
		at -= n
		block := make([]byte, n, int(n)+len(tail))
		if _, err := file.ReadAt(block, at); err != nil {
			return nil, 0, err
		}
		tail = append(block, tail...)
	}
}

// begin is an error if what a route writes from a position of the slot on does not follow what is in the file.
func (f *EventFile) begin(route *evidence.Route, from evidence.Reach) error {
	var end evidence.Reach
	if f.last != nil {
		if err := f.last.Fits(route); err != nil {
			return history.Refuse(errOtherEvents, "%s: %s", fixOtherFile, f.name, err)
		}
		// Of the last transaction that is there the rest may be missing: the slot must send it again.
		end = evidence.Reach{History: f.last.Position.History, Timeline: f.last.Position.Timeline, LSN: f.last.Position.Commit}
	}
	if f.upTo != nil && end.Compare(*f.upTo) < 0 {
		end = *f.upTo
	}
	fix := fixOtherFile
	if f.last == nil {
		fix += fmt.Sprintf(", or remove %s%s to begin anew", f.name, reachedFile)
	}
	switch {
	case f.last == nil && f.upTo == nil:
		return nil
	case from.History != end.History || from.Timeline != end.Timeline:
		return history.Refuse(errOtherEvents, "%s ends in history %d on timeline %d, and the slot is in %d on %d: some of what the file has may never have happened",
			fix, f.name, end.History, end.Timeline, from.History, from.Timeline)
	case from.LSN > end.LSN:
		return history.Refuse(errOtherEvents, "%s ends at %s, and the slot has moved on to %s: what was deleted in between would be missing",
			fix, f.name, end.LSN, from.LSN)
	default:
		return nil
	}
}

// reachedFile is what the name of the file has behind it that says up to where the file has everything.
const reachedFile = ".reached"

func readReached(name string) (*evidence.Reach, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	reach, err := evidence.ParseReach(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w: %s", name, err, fixOtherFile)
	}
	return &reach, nil
}

// reached says that everything below is in the file, and on disk.
func (f *EventFile) reached(upTo evidence.Reach) error {
	if f.file == nil || f.upTo != nil && upTo.Compare(*f.upTo) <= 0 {
		return nil
	}
	name := f.name + reachedFile
	if err := durable.Write(name, []byte(upTo.String()+"\n")); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	f.upTo = &upTo
	return nil
}

const fixOtherFile = "name another file"

// has reports whether an event is in the file already.
func (f *EventFile) has(at replication.Position) bool {
	return f.last != nil && at.Compare(f.last.Position) <= 0
}

func (f *EventFile) write(value []byte) error {
	f.dirty = true
	if _, err := f.out.Write(value); err != nil {
		return fmt.Errorf("write to %s: %w", f.name, err)
	}
	if err := f.out.WriteByte('\n'); err != nil {
		return fmt.Errorf("write to %s: %w", f.name, err)
	}
	return nil
}

// sync makes what was written durable; of a stream, it is handed over.
func (f *EventFile) sync() error {
	if !f.dirty {
		return nil
	}
	err := f.out.Flush()
	if err == nil && f.file != nil {
		err = f.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("write to %s: %w", f.name, err)
	}
	f.dirty = false
	return nil
}

// Close closes the file. What was not synced may be lost.
func (f *EventFile) Close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}
