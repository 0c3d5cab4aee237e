package executor

import (
	"context"
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

const (
	// rowLocker reads who a process is.
	rowLocker = `select a.pid, left(coalesce(a.application_name, ''), 63), a.xact_start from pg_stat_activity a where a.pid = $1`
	// tableLocker finds who holds, or waits for, a lock that keeps writers out of a relation: a session, or a prepared transaction, which
	// has no process. It ignores a lock on only one partition of a table that a cascade reaches.
	tableLocker = `
		select coalesce(l.pid, -1), left(coalesce(a.application_name, ''), 63), coalesce(a.xact_start, x.prepared)
		  from pg_locks l
		  left join pg_stat_activity a on a.pid = l.pid
		  left join pg_prepared_xacts x on l.pid is null and l.virtualtransaction = '-1/' || x.transaction
		 where l.locktype = 'relation' and (l.relation = $1::oid or l.relation = any ($2::oid[]) and not (select c.relispartition from pg_class c where c.oid = l.relation))
		   and l.database = (select d.oid from pg_database d where d.datname = current_database())
		   and l.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock') and l.pid is distinct from pg_backend_pid()
		 order by l.granted desc, l.pid limit 1`
)

// rowsLocked records which process locks the rows that a batch left.
func (w *worker) rowsLocked(ctx context.Context, m *policyMemory, process int32) {
	if m.locks.by().process != process {
		w.findLocker(ctx, m, rowLocker, process)
	}
}

// tableLocked reports whether a session locks, or waits to lock, the whole leaf or a table that a cascade reaches; and records who.
func (w *worker) tableLocked(ctx context.Context, m *policyMemory, leaf uint32, cascades []uint32) bool {
	return w.findLocker(ctx, m, tableLocker, leaf, cascades)
}

// findLocker runs a query for a locker and records the result. It returns false, and keeps what is known, if there is none.
func (w *worker) findLocker(ctx context.Context, m *policyMemory, query string, what ...any) bool {
	var l locker
	if err := w.session.Control.QueryRow(ctx, query, what...).Scan(&l.process, &l.application, &l.since); err != nil {
		return false // its transaction has ended
	}
	m.locks.found(l)
	return true
}
