package folder

import (
	"cmp"
	"context"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"lapse/audit/tree"
	"lapse/internal/backoff"
	"lapse/schemas"
)

// treePublisher publishes the log's tree at each checkpoint, as far as it is durable. It reads the records back from the log, so the
// publisher does not wait for it, and what it writes can be made again. It does not check the checkpoint's signature: it only adds files
// that come to the same root.
type treePublisher struct {
	p     *Publisher
	topic string

	mu    sync.Mutex
	notes []notedCheckpoint // that were appended
	due   [][]byte          // signed notes that are durable, and not published
	wake  chan struct{}

	tiles *tree.Published // nil: to be opened
	next  int64           // offset of the first record that tiles may not have
}

type notedCheckpoint struct {
	signed []byte
	number uint64 // of its record
}

func newTreePublisher(p *Publisher, topic string) *treePublisher {
	return &treePublisher{p: p, topic: topic, wake: make(chan struct{}, 1)}
}

// noticed records an appended record.
func (t *treePublisher) noticed(rec *schemas.Record, number uint64) {
	if t == nil || rec.Topic != t.topic || !rec.IsFence() || len(rec.Value) == 0 {
		return
	}
	if signed, _, is := noteIn(rec); is {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.notes = append(t.notes, notedCheckpoint{signed, number})
	}
}

// noteIn returns the signed note of a checkpoint, or of a checkpoint with cosignatures, which follows it and replaces it.
func noteIn(rec *schemas.Record) (signed []byte, cosigned, ok bool) {
	if signed, ok = tree.NoteIn(rec.Value); ok {
		return signed, false, true
	}
	signed, ok = tree.CosignedIn(rec.Value)
	return signed, ok, ok
}

// durable records that records are durable up to a number.
func (t *treePublisher) durable(upTo uint64) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.notes) > 0 && t.notes[0].number <= upTo {
		t.due, t.notes = append(t.due, t.notes[0].signed), t.notes[1:]
		signal(t.wake)
	}
}

const (
	treePause = time.Minute             // between two tries to publish the tree
	treeLast  = 1500 * time.Millisecond // for what is due when the publisher is closed: the next one publishes the rest
)

// run publishes until ctx ends, and then what is due. It retries what fails: whatever happens to the tiles, the log has the records.
func (t *treePublisher) run(ctx context.Context) {
	for {
		err := t.publish(ctx)
		if err != nil && ctx.Err() == nil {
			t.tiles = nil
			t.p.log.Warn("the log's tree is not published; the log itself has all of it, and this is tried again",
				"folder", filepath.Join(t.p.cfg.Dir, TreeDir), "error", err)
			_ = backoff.Sleep(ctx, treePause) // its error is that ctx has ended
			continue
		}
		if ctx.Err() != nil {
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), treeLast)
			defer cancel()
			if err := t.publish(last); err != nil {
				t.p.log.Info("the log's tree is published by the next start", "error", err)
			}
			return
		}
		select {
		case <-t.wake:
		case <-ctx.Done():
		}
	}
}

// publish publishes every checkpoint that is due.
func (t *treePublisher) publish(ctx context.Context) error {
	if t.tiles == nil {
		if err := t.open(ctx); err != nil {
			return err
		}
	}
	for {
		t.mu.Lock()
		var signed []byte
		if len(t.due) > 0 {
			signed = t.due[0]
		}
		t.mu.Unlock()
		if signed == nil {
			return nil
		}
		if err := t.publishOne(ctx, signed); err != nil {
			return err
		}
		t.mu.Lock()
		t.due = t.due[1:]
		t.mu.Unlock()
	}
}

func (t *treePublisher) publishOne(ctx context.Context, signed []byte) error {
	of, err := tree.Peek(signed)
	if err != nil {
		return nil //nolint:nilerr // no auditor has made it
	}
	if of.Size < t.tiles.Size() {
		return nil // published, or passed over when the tree was made again
	}
	reader := NewClient(t.p.cfg.Dir).Reader(t.topic, 0, t.next, t.p.End(t.topic, 0).Offset)
	for t.tiles.Size() < of.Size {
		rec, offset, err := reader.Next(ctx)
		if errors.Is(err, io.EOF) {
			return corrupt(filepath.Join(t.p.cfg.Dir, topicsDir, t.topic), "a checkpoint signs %d records, and there are %d", of.Size, t.tiles.Size())
		}
		if err != nil {
			return err
		}
		if index, placed := tree.IndexOf(&rec); placed && index == t.tiles.Size() {
			if err := t.tiles.Add(rec.Value); err != nil {
				return err
			}
			t.next = offset + 1
		}
	}
	return t.tiles.Publish(signed)
}

// open continues where the former publisher ended: with the published checkpoint, and those that the log has after it. To publish all that the
// log ever had takes fsyncs for each, so a tree that is made again begins with the newest, and of those with cosignatures with the newest of
// each witness and of the most witnesses: a verifier may want several of one checkpoint.
func (t *treePublisher) open(ctx context.Context) (err error) {
	dir := filepath.Join(t.p.cfg.Dir, TreeDir)
	if t.tiles, err = tree.OpenPublished(dir); err != nil {
		t.p.log.Warn("the published tree is made again from the log", "folder", dir, "reason", err)
		t.tiles = tree.NewPublished(dir)
	}
	t.mu.Lock()
	t.due, t.next = nil, 0 // what becomes due from here on is published after what is found below
	t.mu.Unlock()
	var notes [][]byte // the newest first
	again, plain, by, most := t.tiles.Size() == 0, false, map[string]bool{}, 0
	err = NewClient(t.p.cfg.Dir).Backward(ctx, t.topic, 0, t.p.End(t.topic, 0).Offset, func(rec *schemas.Record, offset int64) (bool, error) {
		if rec.IsFence() {
			signed, cosigned, is := noteIn(rec)
			if !is {
				return true, nil
			}
			keep := !again
			if cosigned {
				signers := signersOf(signed)
				keep = keep || len(signers) > most || slices.ContainsFunc(signers, func(name string) bool { return !by[name] })
				most = max(most, len(signers))
				for _, name := range signers {
					by[name] = true
				}
			} else if !plain {
				keep, plain = true, true
			}
			if keep {
				notes = append(notes, signed)
			}
			return true, nil
		}
		if index, placed := tree.IndexOf(rec); placed && index < t.tiles.Size() {
			t.next = offset + 1
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		t.tiles = nil
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	slices.Reverse(notes)
	if again { // a checkpoint may be cosigned after the next one was made
		slices.SortStableFunc(notes, func(a, b []byte) int { return cmp.Compare(sizeOf(a), sizeOf(b)) })
	}
	t.due = append(notes, t.due...)
	return nil
}

// signersOf returns the names in a note's signatures.
func signersOf(signed []byte) (names []string) {
	for line := range strings.Lines(string(signed)) {
		if by, is := strings.CutPrefix(line, "— "); is {
			name, _, _ := strings.Cut(by, " ")
			names = append(names, name)
		}
	}
	return names
}

func sizeOf(signed []byte) int64 {
	of, err := tree.Peek(signed)
	if err != nil {
		return 0 // publishOne passes it over
	}
	return of.Size
}
