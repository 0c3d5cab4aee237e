package executor

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"lapse/executor/guard"
	"lapse/executor/state"
)

// beatInterval is the longest time between two beats of an executor that runs: what is deleted after the last one before it is killed
// is not remembered.
const beatInterval = 10 * time.Second

// beats keeps what is remembered of a database outside of it, where no audit is required; see package state. Not safe for concurrent use:
// one look beats at a time.
type beats struct {
	folder *state.Folder // nil: nothing is remembered
	log    *slog.Logger
	last   time.Time
	failed bool // the file could not be written last time
}

// beat writes what the facts allow to remember, if it was not written lately: before anything is deleted, since no batch runs before a
// look has ended. An error is the database's; where the file cannot be written, deletion goes on without.
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

// remember beats once more, after the last batch.
func (g *guards) remember(ctx context.Context, q guard.Querier, now time.Time) error {
	if g.beats.folder == nil {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.beats.last = time.Time{}
	return g.refresh(ctx, q, now)
}
