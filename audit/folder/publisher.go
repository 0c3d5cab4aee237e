package folder

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"lapse/audit/store"
	"lapse/schemas"
)

// Publisher keeps each record in its partition once. The package comment says what the caller must do for that. Append is for one
// goroutine; all other methods are safe for concurrent use.
type Publisher struct {
	cfg   Config
	disk  *disk
	log   *slog.Logger
	id    *identity
	epoch int32
	lock  *os.File

	byTopic map[string][]*partition
	all     []*partition

	mu       sync.Mutex
	appended uint64    // number of the last record that was taken
	buffered int       // bytes that wait, or are being written
	oldest   time.Time // since when records have waited; zero if none wait
	full     error     // why there is no room; nil while there is
	told     time.Time // when that was last logged

	acked    atomic.Uint64
	progress chan struct{}
	wake     chan struct{}
	err      atomic.Pointer[error]
	stop     context.CancelFunc
	running  sync.WaitGroup
	tree     *treePublisher // nil: of a folder without a log
}

// Open takes the folder over.
//
//	crash after the lock      nothing has changed
//	crash while topics are    they are there or not; the next Open makes the rest
//	made
//	crash among the fences    one more fence in some partitions, which consumers skip
func Open(ctx context.Context, cfg Config) (_ *Publisher, err error) {
	cfg = cfg.withDefaults()
	p := &Publisher{
		cfg: cfg, disk: cfg.disk, log: cfg.Logger, byTopic: map[string][]*partition{},
		progress: make(chan struct{}, 1), wake: make(chan struct{}, 1), stop: func() {},
	}
	defer func() {
		if err != nil {
			p.release()
			err = fileError(err)
		}
	}()
	if err := p.takeFolder(ctx); err != nil {
		return nil, err
	}
	if err := p.openTopics(ctx); err != nil {
		return nil, err
	}
	if err := p.fenceAll(ctx); err != nil {
		return nil, err
	}
	p.log.Info("folder opened", "folder", cfg.Dir, "partitions", len(p.all), "epoch", p.epoch)
	p.start(ctx)
	return p, nil
}

// takeFolder checks the place, locks it, and reads its identity.
func (p *Publisher) takeFolder(ctx context.Context) error {
	dir := p.cfg.Dir
	warning, err := Check(dir)
	if err != nil {
		return err
	}
	if warning != "" {
		p.log.Warn("the place of the evidence is not safe", "folder", dir, "reason", warning)
	}
	if err := os.Mkdir(dir, 0o700); err == nil {
		err = p.disk.syncDir(filepath.Dir(filepath.Clean(dir)))
		if err != nil {
			return err
		}
	} else if !errors.Is(err, os.ErrExist) {
		return err
	}
	if p.lock, err = lock(ctx, dir, p.disk.lockPatience); err != nil {
		return err
	}
	if p.id, err = makeIdentity(dir); err != nil {
		return err
	}
	if err := p.disk.makeDir(dir, filepath.Join(dir, topicsDir)); err != nil {
		return err
	}
	return p.disk.makeDir(dir, filepath.Join(dir, TreeDir))
}

// openTopics opens all partitions, and determines the epoch after all former ones.
func (p *Publisher) openTopics(ctx context.Context) error {
	for i := range p.cfg.Topics {
		topic := &p.cfg.Topics[i]
		for n := range topic.Partitions {
			t, err := p.newPartition(topic, int32(n))
			if err != nil {
				return err
			}
			p.all, p.byTopic[topic.Name] = append(p.all, t), append(p.byTopic[topic.Name], t)
			epoch, err := t.recover(ctx)
			if err != nil {
				return err
			}
			p.epoch = max(p.epoch, epoch)
		}
	}
	p.epoch++
	return nil
}

// fenceAll writes a fence into each partition, and reads what is below it.
func (p *Publisher) fenceAll(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4) // each holds a segment in memory
	reader := NewClient(p.cfg.Dir)
	for _, t := range p.all {
		group.Go(func() error {
			t.fence = t.next
			fence := schemas.Record{
				Headers: append([]schemas.Header{{Key: schemas.HeaderOp, Value: []byte(schemas.OpFence)}}, p.cfg.FenceHeaders...), Time: time.Now(),
			}
			t.next++
			if err := t.write(ctx, appendFrame(nil, &fence, t.fence, p.epoch), t.next); err != nil {
				return err
			}
			return reader.Backward(ctx, t.topic.Name, t.number, t.fence, func(rec *schemas.Record, offset int64) (bool, error) {
				if rec.IsFence() || p.cfg.Ours != nil && !p.cfg.Ours(rec) {
					return true, nil
				}
				t.tail = []store.Record{{Record: *rec, Offset: offset}}
				return false, nil
			})
		})
	}
	return group.Wait()
}

func (p *Publisher) start(ctx context.Context) {
	ctx, p.stop = context.WithCancel(context.WithoutCancel(ctx)) // Open's context bounds Open
	p.running.Go(func() { p.run(ctx) })
	p.running.Go(func() { p.sweep(ctx) })
	for i := range p.cfg.Topics {
		if topic := &p.cfg.Topics[i]; topic.Tree {
			p.tree = newTreePublisher(p, topic.Name)
			p.running.Go(func() { p.tree.run(ctx) })
		}
	}
}

// Last returns the newest of our records in a partition below this publisher's fence, if there is one.
func (p *Publisher) Last(topic string, partition int32) []store.Record {
	if t := p.partition(topic, partition); t != nil {
		return t.tail
	}
	return nil
}

// End returns the end of what is durable in a partition; the zero End for a partition that this publisher does not have.
func (p *Publisher) End(topic string, partition int32) store.End {
	if t := p.partition(topic, partition); t != nil {
		return *t.end.Load()
	}
	return store.End{}
}

func (p *Publisher) partition(topic string, partition int32) *partition {
	all := p.byTopic[topic]
	if partition < 0 || int(partition) >= len(all) {
		return nil
	}
	return all[partition]
}

// Append takes a record without blocking, and numbers it above those before it. The caller may reuse its memory. ok is false if it was not
// taken: if Err is nil the buffer is full, and any other error is final.
func (p *Publisher) Append(rec schemas.Record) (number uint64, ok bool) {
	if p.err.Load() != nil {
		return 0, false
	}
	t := p.partition(rec.Topic, rec.Partition)
	if t == nil {
		p.fail(fmt.Errorf("publish to %s/%d: no such partition was opened", rec.Topic, rec.Partition))
		return 0, false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.buffered >= p.cfg.MaxBuffered {
		return 0, false
	}
	before := len(t.waiting)
	t.waiting = appendFrame(t.waiting, &rec, t.next, p.epoch)
	size := len(t.waiting) - before
	if size > maxBody {
		t.waiting = t.waiting[:before]
		p.fail(fmt.Errorf("publish to %s/%d: a record of %d bytes where %d are allowed: %w", rec.Topic, rec.Partition, size, maxBody, ErrTooLarge))
		return 0, false
	}
	t.next++
	p.buffered += size
	p.appended++
	if p.oldest.IsZero() {
		p.oldest = time.Now()
	}
	p.tree.noticed(&rec, p.appended)
	signal(p.wake)
	return p.appended, true
}

// run writes appended records in rounds: everything that waits at the beginning of a round is durable at its end.
func (p *Publisher) run(ctx context.Context) {
	for {
		select {
		case <-p.wake:
		case <-ctx.Done():
			return
		}
		for p.err.Load() == nil && p.round(ctx) {
		}
	}
}

// round reports whether there was anything to write.
func (p *Publisher) round(ctx context.Context) (any bool) {
	type batch struct {
		t      *partition
		frames []byte
		next   int64
	}
	var batches []batch
	p.mu.Lock()
	upTo, bytes, began := p.appended, p.buffered, time.Now()
	for _, t := range p.all {
		if len(t.waiting) > 0 {
			batches = append(batches, batch{t, t.waiting, t.next})
			t.waiting, t.spare = t.spare, nil
		}
	}
	p.mu.Unlock()
	if len(batches) == 0 {
		return false
	}
	var group errgroup.Group
	for _, b := range batches {
		group.Go(func() error { return b.t.write(ctx, b.frames, b.next) })
	}
	if err := group.Wait(); err != nil {
		p.fail(fileError(err))
		return false
	}
	p.mu.Lock()
	for _, b := range batches {
		b.t.spare = b.frames[:0]
	}
	p.buffered -= bytes
	p.full = nil
	if p.oldest = (time.Time{}); p.buffered > 0 {
		p.oldest = began
	}
	p.mu.Unlock()
	p.acked.Store(upTo)
	p.tree.durable(upTo)
	signal(p.progress)
	return true
}

// noRoom records that there is no room, and logs it each minute.
func (p *Publisher) noRoom(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.full = err
	if time.Since(p.told) < time.Minute {
		return
	}
	p.told = time.Now()
	p.log.Error("no room for the evidence: nothing is published or confirmed, and PostgreSQL keeps its log; free some, and it goes on by itself",
		"folder", p.cfg.Dir, "error", err)
}

// Acked is the number up to which everything is durable.
func (p *Publisher) Acked() uint64 { return p.acked.Load() }

// Progress receives when Acked has moved, when the buffer has room again, and when the publisher has ended with an error.
func (p *Publisher) Progress() <-chan struct{} { return p.progress }

// Stalled is how long the oldest record has waited; 0 if none waits.
func (p *Publisher) Stalled() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.oldest.IsZero() {
		return 0
	}
	return time.Since(p.oldest)
}

// Awaits tells a person what is missing while Stalled grows.
func (p *Publisher) Awaits() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.full != nil {
		return fmt.Sprintf("there is no room in %s", p.cfg.Dir)
	}
	return fmt.Sprintf("%s has taken nothing", p.cfg.Dir)
}

// Err is nil while the publisher works or waits for room. Otherwise it has ended, and writes nothing more.
func (p *Publisher) Err() error {
	if err := p.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Close stops writing and unlocks the folder. It does not wait for acknowledgements.
func (p *Publisher) Close(ctx context.Context) error {
	p.fail(ErrClosed)
	done := make(chan struct{})
	go func() {
		p.running.Wait()
		p.release()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close the folder: %w", context.Cause(ctx))
	}
}

// release closes all files, which also releases the lock.
func (p *Publisher) release() {
	for _, t := range p.all {
		if t.file != nil {
			_ = t.file.Close() // what is on disk was synced
		}
	}
	if p.lock != nil {
		_ = p.lock.Close()
	}
}

// fail keeps the first error that ends the publisher, and stops all goroutines.
func (p *Publisher) fail(err error) {
	if !p.err.CompareAndSwap(nil, &err) {
		return
	}
	p.stop()
	signal(p.progress)
	if !errors.Is(err, ErrClosed) {
		p.log.Error("publisher stopped", "folder", p.cfg.Dir, "error", err)
	}
}

func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}
