package executor

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"lapse/executor/guard"
	"lapse/executor/state"
)

// beatInterval is the longest time between two beats of a running executor. If the executor is killed, the deletions since its last
// beat are not remembered.
const beatInterval = 10 * time.Second

// beats keeps, outside of a database without an audit, what shows that it was restored: see package state. Not safe for concurrent
// use: the guards let one goroutine beat at a time.
type beats struct {
	folder *state.Folder // nil: no beats are written
	log    *slog.Logger
	last   time.Time
	failed bool // the last beat could not be written to the file
}

// beat writes a beat, unless it wrote one lately. Every batch waits for a reading of the facts, so the beat precedes any deletion. An
// error is the database's; if the file cannot be written, deletion continues without.
func (b *beats) beat(ctx context.Context, q guard.Querier, f *guard.Facts, now time.Time) error {
	seen := f.ToRemember()
	if b.folder == nil || seen == nil || !b.last.IsZero() && now.Sub(b.last) < beatInterval {
		return nil
	}
	memory, n := b.folder.Memory(seen), int64(0)
	if err := q.QueryRow(ctx, `select lapse.remember($1)`, memory).Scan(&n); err != nil {
		return fmt.Errorf("remember the database: %w", err)
	}
	b.last = now
	err := b.folder.Remember(seen, memory, n)
	if failed := err != nil; failed != b.failed {
		b.failed = failed
		if failed {
			b.log.Warn("the deletions are not remembered, so a restored copy would not be noticed", "error", err)
		} else {
			b.log.Info("the deletions are remembered again")
		}
	}
	return nil
}

// remember beats once more, after the last batch: of what was read last, if a batch could still rely on that.
func (g *guards) remember(ctx context.Context, q guard.Querier, now time.Time) error {
	if g.beats.folder == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.beats.last = time.Time{}
	if g.believed(now) {
		return g.beats.beat(ctx, q, g.facts, now)
	}
	return g.refresh(ctx, q, now)
}
