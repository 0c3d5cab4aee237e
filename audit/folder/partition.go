package folder

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"lapse/audit/store"
	"lapse/internal/backoff"
)

// partition is a partition of a topic, as its publisher has it.
type partition struct {
	p      *Publisher
	topic  *Topic
	number int32
	dir    string
	place  uint32

	// Under the publisher's mutex: what was appended.
	waiting []byte
	spare   []byte // memory for records that are appended while waiting is written
	next    int64  // the offset of the next record

	// Of the one goroutine that writes.
	file   *os.File
	base   int64 // of the last segment
	length int64 // of its file, all of it on disk
	synced int64 // the offset after the last record on disk
	made   time.Time

	fence int64 // the offset of this publisher's
	tail  []store.Record
	end   atomic.Pointer[store.End]
}

// recover opens a partition as the former publisher left it.
//
//	crash within a record              it is cut off: it was never acknowledged
//	crash while a segment was made     a last segment without a whole header is made again
//	crash after that                   whole records are kept and made durable: the next start finds them in the tail
//
// It drops what a failed fsync of the former process left in the system's memory, so that only what is on disk counts.
func (t *partition) recover(ctx context.Context) (epoch int32, err error) {
	all, err := listSegments(t.dir)
	if err != nil {
		return 0, err
	}
	last, torn, err := checkChain(all, t.p.id.ID, t.place, t.topic.Forever)
	if err != nil {
		return 0, err
	}
	if torn {
		if err := errors.Join(os.Remove(all[len(all)-1].path), t.p.disk.syncDir(t.dir)); err != nil {
			return 0, err
		}
		all = all[:len(all)-1]
		if last, _, err = checkChain(all, t.p.id.ID, t.place, t.topic.Forever); err != nil {
			return 0, err
		}
	}
	if len(all) == 0 {
		return 0, t.makeSegment(ctx, 0, noSegment, 0)
	}
	t.base, t.made = last.base, last.made
	return t.recoverLast(all[len(all)-1].path)
}

func (t *partition) recoverLast(path string) (epoch int32, err error) {
	if t.file, err = os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0); err != nil {
		return 0, err
	}
	if err := t.sync(); err != nil {
		return 0, err
	}
	forget(t.file)
	content, err := readSegment(path)
	if err != nil {
		return 0, err
	}
	found := scan(content, t.base)
	if found.cut != nil {
		t.p.cfg.Logger.Warn("a record that was half written when the process ended is cut off", "file", path, "bytes", int64(len(content))-found.good)
		if err := t.file.Truncate(found.good); err != nil {
			return 0, err
		}
		if err := t.sync(); err != nil {
			return 0, err
		}
	}
	t.length, t.synced, t.next = found.good, found.next, found.next
	if len(found.frames) == 0 {
		return 0, nil
	}
	s, err := decode(found.frames[len(found.frames)-1], t.topic.Name, t.number)
	if err != nil {
		return 0, corrupt(path, "its last record is none")
	}
	t.end.Store(&store.End{Offset: t.synced, Producer: t.p.id.producer(), Epoch: s.epoch})
	return s.epoch, nil
}

// makeSegment makes the partition's next segment, and waits while there is no room for it.
//
//	crash before it is on disk    a last segment without whole header, or none: made again
func (t *partition) makeSegment(ctx context.Context, base, before, beforeLength int64) error {
	h := header{folder: t.p.id.ID, place: t.place, base: base, before: before, beforeLength: beforeLength, made: time.Now()}
	path := segmentPath(t.dir, base)
	var file *os.File
	for file == nil {
		made, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o640)
		if err == nil {
			if _, err = t.p.disk.write(made, h.bytes(), 0); err == nil {
				file = made
				break
			}
			err = errors.Join(err, made.Close(), os.Remove(path))
		}
		if err := t.awaitRoom(ctx, err); err != nil {
			return err
		}
	}
	if t.file != nil {
		if err := t.file.Close(); err != nil {
			return err
		}
	}
	t.file, t.base, t.length, t.made = file, base, headerSize, h.made
	if err := t.sync(); err != nil {
		return err
	}
	return t.p.disk.syncDir(t.dir)
}

// awaitRoom waits if err means that there is no room, and returns any other error.
func (t *partition) awaitRoom(ctx context.Context, err error) error {
	if !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) {
		return err
	}
	t.p.noRoom(err)
	return backoff.Sleep(ctx, t.p.disk.retry)
}

// write appends frames and makes them durable, up to the offset next. While there is no room it waits and retries.
//
//	crash within it    some of them are whole and on disk, or none: see recover
func (t *partition) write(ctx context.Context, frames []byte, next int64) error {
	if t.length >= t.p.disk.segment || t.isOld() {
		if err := t.makeSegment(ctx, t.synced, t.base, t.length); err != nil {
			return err
		}
	}
	for {
		if err := t.checkFile(); err != nil {
			return err
		}
		_, err := t.p.disk.write(t.file, frames, t.length)
		if err == nil {
			break
		}
		// A partial record is cut off: a reader would take it for the partition's end.
		if cut := t.file.Truncate(t.length); cut != nil {
			return errors.Join(err, cut)
		}
		if err := t.awaitRoom(ctx, err); err != nil {
			return err
		}
	}
	if err := t.sync(); err != nil {
		return err
	}
	t.length, t.synced = t.length+int64(len(frames)), next
	t.end.Store(&store.End{Offset: next, Producer: t.p.id.producer(), Epoch: t.p.epoch})
	return nil
}

// sync makes the file durable. It does not retry: after an error the system may report data as written that is not.
func (t *partition) sync() error {
	if err := t.p.disk.sync(t.file); err != nil {
		return fmt.Errorf("sync %s: %w: %w: see to the disk, and start again: what was not acknowledged is sent again", t.file.Name(), ErrNotDurable, err)
	}
	return nil
}

// checkFile checks that the file is as the publisher left it, and in its place.
func (t *partition) checkFile() error {
	is, err := t.file.Stat()
	if err != nil {
		return err
	}
	path := segmentPath(t.dir, t.base)
	named, err := os.Lstat(path)
	switch {
	case isGone(err):
		return fmt.Errorf("publish into %s: %w: it is gone", path, ErrReplaced)
	case err != nil:
		return err
	case !os.SameFile(is, named):
		return fmt.Errorf("publish into %s: %w: another file has its name", path, ErrReplaced)
	case is.Size() != t.length:
		return fmt.Errorf("publish into %s: %w: it has %d bytes, and was left with %d", path, ErrReplaced, is.Size(), t.length)
	}
	return nil
}

// newPartition makes a partition's folder, or finds it.
func (p *Publisher) newPartition(topic *Topic, number int32) (*partition, error) {
	path, err := topicPath(p.cfg.Dir, topic.Name)
	if err != nil {
		return nil, err
	}
	t := &partition{p: p, topic: topic, number: number, place: placeOf(topic.Name, number), dir: filepath.Join(path, strconv.Itoa(int(number)))}
	t.end.Store(&store.End{})
	if err := p.disk.makeDir(p.cfg.Dir, path); err != nil {
		return nil, err
	}
	return t, p.disk.makeDir(p.cfg.Dir, t.dir)
}
