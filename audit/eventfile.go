package audit

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"lapse/audit/evidence"
	"lapse/audit/history"
	"lapse/audit/store"
	"lapse/internal/durable"
	"lapse/replication"
	"lapse/schemas"
)

// EventFile is where Copy puts events: a file, or a stream such as standard output. Each is a line, the value that its records in
// the topics have.
//
//	crash before Sync    lines may be missing from some point on, and the last one may be torn: OpenEventFile cuts it off, and Copy
//	                     writes what is missing
//	crash after Sync     what was written is on disk
//
// A second file, with .reached appended to the name, says up to which position the file is complete, with or without events.
//
//	crash before it is written    it says less than is true: Copy may refuse to continue although nothing is missing
//
// Not safe for concurrent use. A second process with the same file is refused.
type EventFile struct {
	name string
	file *os.File // nil for a stream
	out  *bufio.Writer
	last *evidence.EventValue // of the file when it was opened; nil for none
	upTo *evidence.Reach      // everything below is in the file; nil: not known

	log            string               // the topic whose records are dropped, because a file has no log
	at             replication.Position // of the last event
	events, synced uint64               // written events, and those of them that are durable
	dirty          time.Time            // since when a line is unsynced; zero for none
	timer          *time.Timer          // signals progress when the unsynced line is due
	progress       chan struct{}
	err            error
}

var _ Sink = (*EventFile)(nil)

const (
	syncInterval = 200 * time.Millisecond // the longest time that a written line stays unsynced
	maxUnsynced  = maxQueued / 2          // lines: the relay's queue never fills with lines that wait for a sync

	eventBuffer = 1 << 18
	tailBlock   = 1 << 16
	longestLine = 1 << 20 // longer than any event
)

// NewEventStream writes to w, which cannot be read back.
func NewEventStream(name string, w io.Writer) *EventFile {
	progress := make(chan struct{}, 1)
	timer := time.AfterFunc(time.Hour, func() {
		select {
		case progress <- struct{}{}:
		default:
		}
	})
	timer.Stop()
	return &EventFile{name: name, out: bufio.NewWriterSize(w, eventBuffer), timer: timer, progress: progress}
}

// OpenEventFile opens or creates a file, and continues after its last whole line. A pipe or device such as /dev/null is a stream.
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
	f := NewEventStream(name, file)
	f.file = file
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

// lastLine returns the last whole line of a file, and where it ends.
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

// begin returns an error if what a route writes from a position of the slot on does not follow what is in the file.
func (f *EventFile) begin(route *evidence.Route, from evidence.Reach) error {
	f.log = route.Log.Name
	var end evidence.Reach
	if f.last != nil {
		if err := f.last.Fits(route); err != nil {
			return history.Refuse(errOtherEvents, "%s: %s", fixOtherFile, f.name, err)
		}
		// The rest of the last transaction in the file may be missing: the slot must send it again.
		end = evidence.Reach{History: f.last.Position.History, Timeline: f.last.Position.Timeline, LSN: f.last.Position.Commit}
	}
	if f.upTo != nil && end.Compare(*f.upTo) < 0 {
		end = *f.upTo
	}
	fix := fixOtherFile
	if f.last == nil {
		fix += fmt.Sprintf(", or remove %s%s to begin again", f.name, reachedFile)
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

// reachedFile is the suffix of the file that says up to which position an event file is complete.
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

// reached records that everything below is in the file, and on disk.
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

// has reports whether an event is in the file already: from an earlier run, or as the record of another partition.
func (f *EventFile) has(at replication.Position) bool {
	return at == f.at || f.last != nil && at.Compare(f.last.Position) <= 0
}

// Append writes an event that is not in the file yet.
func (f *EventFile) Append(record schemas.Record) (number uint64, ok bool) {
	if f.err != nil {
		return 0, false
	}
	if record.Topic == f.log {
		return f.events, true
	}
	at, err := evidence.EventPosition(&record)
	if err == nil && !f.has(at) {
		f.at = at
		err = f.write(record.Value)
	}
	f.err = err
	return f.events, err == nil
}

func (f *EventFile) write(value []byte) error {
	f.events++
	if f.dirty.IsZero() {
		f.dirty = time.Now()
		f.timer.Reset(syncInterval)
	}
	_, err := f.out.Write(value)
	if err == nil {
		err = f.out.WriteByte('\n')
	}
	return f.wrap(err)
}

// Acked is how many events are durable. It syncs if there are many unsynced ones, or if the first of them has waited long enough.
func (f *EventFile) Acked() uint64 {
	if f.err == nil && (f.events-f.synced >= maxUnsynced || f.Stalled() >= syncInterval) {
		f.err = f.sync()
	}
	return f.synced
}

// Progress receives when lines are to be synced.
func (f *EventFile) Progress() <-chan struct{} { return f.progress }

// Err is why writing has stopped.
func (f *EventFile) Err() error { return f.err }

// Stalled is how long a line has been unsynced.
func (f *EventFile) Stalled() time.Duration {
	if f.dirty.IsZero() {
		return 0
	}
	return time.Since(f.dirty)
}

// End returns nothing, because a file has no log that would say it.
func (f *EventFile) End(string, int32) store.End { return store.End{} }

// sync makes the written lines durable; for a stream, it hands them over.
func (f *EventFile) sync() error {
	if f.dirty.IsZero() || f.err != nil {
		return f.err
	}
	err := f.out.Flush()
	if err == nil && f.file != nil {
		err = f.file.Sync()
	}
	if err == nil {
		f.synced, f.dirty = f.events, time.Time{}
	}
	return f.wrap(err)
}

func (f *EventFile) wrap(err error) error {
	if err != nil {
		return fmt.Errorf("write to %s: %w", f.name, err)
	}
	return nil
}

// Close closes the file. Unsynced lines may be lost.
func (f *EventFile) Close() error {
	if f.file == nil {
		return nil
	}
	return f.file.Close()
}
