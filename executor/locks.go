package executor

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"lapse/schemas"
)

// locker is who locks rows or tables that a policy needs, as far as this login may see.
type locker struct {
	process     int32 // preparedTransaction if it is a prepared transaction
	application string
	since       *time.Time // begin of its transaction; nil if the login lacks pg_read_all_stats
}

// preparedTransaction is the process number that stands for a prepared transaction.
const preparedTransaction = -1

// String is for a person; "" if the locker is unknown.
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

// locks remembers other sessions' locks that block a policy. Safe for concurrent use.
type locks struct {
	mu      sync.Mutex
	tries   map[int64]int  // by shard: consecutive batches of this run that did not get a lock
	waiting map[int64]bool // shards blocked by a lock since the policy last paused for one
	locker  locker         // the last locker; kept until a run ends without meeting a lock
	met     bool           // a lock was met; kept until a run ends without meeting one
}

// forget drops what is known of a run's shards.
func (l *locks) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.tries)
	clear(l.waiting)
}

// tried counts the consecutive batches on a shard that did not get a lock.
func (l *locks) tried(shard int64, err error) int {
	if schemas.StateOf(err) != schemas.SQLStateLockNotAvailable {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tries[shard]++
	return l.tries[shard]
}

// got records that a batch on a shard got its locks, or that the shard is given up for this run.
func (l *locks) got(shard int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.tries, shard)
}

// othersFirst records that a lock blocks a shard, and reports whether to try other shards before the policy pauses. A shard that was given
// back is handed out last, so a shard that comes a second time shows that all were tried.
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

// level records that a lock blocks the policy, and returns the level to log it at: a person is told once until it is over.
func (l *locks) level() slog.Level {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.met {
		return slog.LevelDebug
	}
	l.met = true
	return slog.LevelWarn
}

// found records a locker.
func (l *locks) found(who locker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.locker = who
}

// by returns the last locker that this process met in this run.
func (l *locks) by() *locker {
	l.mu.Lock()
	defer l.mu.Unlock()
	who := l.locker
	return &who
}

// finish records the end of a run that left this.
func (l *locks) finish(left *runState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.met = l.met && (left.lockedRows || left.aside > 0)
	if !left.lockedRows {
		l.locker = locker{}
	}
}
