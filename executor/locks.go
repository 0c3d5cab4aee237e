package executor

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"lapse/schemas"
)

// locker is who has something of a policy's locked, as far as this login may see it.
type locker struct {
	process     int32 // preparedTransaction: none, but a transaction that was prepared
	application string
	since       *time.Time // its transaction; nil where the login lacks pg_read_all_stats
}

// preparedTransaction is in place of a process.
const preparedTransaction = -1

// String is for a person; "" where nobody is known.
func (l *locker) String() string {
	text := fmt.Sprintf("process %d", l.process)
	switch l.process {
	case 0:
		return ""
	case preparedTransaction:
		text = "a prepared transaction, which pg_prepared_xacts names,"
		if l.since != nil {
			text += " prepared at " + l.since.UTC().Format(time.RFC3339) + ","
		}
		return text + " has locked what is due"
	}
	if l.application != "" {
		text += fmt.Sprintf(" (%q)", l.application)
	}
	if l.since != nil {
		text += ", in a transaction since " + l.since.UTC().Format(time.RFC3339) + ","
	}
	return text + " has locked what is due"
}

// locks remembers others' locks that are in a policy's way. Safe for concurrent use.
type locks struct {
	mu      sync.Mutex
	tries   map[int64]int  // by shard: batches in a row of this run that did not get a lock
	waiting map[int64]bool // shards that a lock kept a batch from, since the policy last paused for one
	locker  locker         // who had something locked, and no run has ended since without
	met     bool           // somebody's lock was in the way, and no run has ended since without
}

// forget forgets the shards of a run, which are its own.
func (l *locks) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.tries)
	clear(l.waiting)
}

// tried counts the batches on a shard, one after the other, that did not get a lock.
func (l *locks) tried(shard int64, err error) int {
	if schemas.StateOf(err) != schemas.SQLStateLockNotAvailable {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tries[shard]++
	return l.tries[shard]
}

// got says that a batch on a shard got its locks, or that the shard is given up for this run.
func (l *locks) got(shard int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.tries, shard)
}

// othersFirst records that a shard could not be worked on because of a lock, and reports whether others are to be tried before the policy
// pauses. A shard that was given back is the last to be given out again: one that comes a second time says that all were tried.
func (l *locks) othersFirst(shard int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting[shard] {
		clear(l.waiting)
		return false
	}
	l.waiting[shard] = true
	return true
}

// level records that somebody's lock is in the way, and says how loud that is: a person is told once, until it is not.
func (l *locks) level() slog.Level {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.met {
		return slog.LevelDebug
	}
	l.met = true
	return slog.LevelWarn
}

// found records who has something locked.
func (l *locks) found(who locker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.locker = who
}

// by is who had something locked when this process last met a lock in this run.
func (l *locks) by() *locker {
	l.mu.Lock()
	defer l.mu.Unlock()
	who := l.locker
	return &who
}

// finish records what a run left that is over.
func (l *locks) finish(left *runState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.met = l.met && (left.lockedRows || left.aside > 0)
	if !left.lockedRows {
		l.locker = locker{}
	}
}
