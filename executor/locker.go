package executor

import (
	"context"
	"fmt"
	"time"
)

// locker is who has something of a policy's locked, as far as this login may see it.
type locker struct {
	process     int32
	application string
	since       *time.Time // its transaction; nil where the login lacks pg_read_all_stats
}

// String is for a person; "" where nobody is known.
func (l *locker) String() string {
	if l.process == 0 {
		return ""
	}
	text := fmt.Sprintf("process %d", l.process)
	if l.application != "" {
		text += fmt.Sprintf(" (%q)", l.application)
	}
	if l.since != nil {
		text += ", in a transaction since " + l.since.UTC().Format(time.RFC3339) + ","
	}
	return text + " has locked what is due"
}

const (
	lockerColumns = `select a.pid, left(coalesce(a.application_name, ''), 63), a.xact_start from pg_stat_activity a where a.pid = `
	// tableLocker finds who has a lock on a relation that keeps writers out.
	tableLocker = `(select l.pid from pg_locks l
		where l.locktype = 'relation' and l.relation = $1::oid and l.database = (select d.oid from pg_database d where d.datname = current_database())
		  and l.mode in ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock') and l.pid <> pg_backend_pid()
		order by l.granted desc, l.pid limit 1)`
)

// rowsLocked takes down which process has rows locked that a batch left.
func (w *worker) rowsLocked(ctx context.Context, m *policyMemory, process int32) {
	if m.lockedBy().process != process {
		w.findLocker(ctx, m, lockerColumns+"$1", process)
	}
}

// tableLocked takes down which process has a relation locked, if one has.
func (w *worker) tableLocked(ctx context.Context, m *policyMemory, relation uint32) {
	w.findLocker(ctx, m, lockerColumns+tableLocker, relation)
}

// findLocker asks. Nothing depends on it: where nobody is found, what was known stays.
func (w *worker) findLocker(ctx context.Context, m *policyMemory, query string, what any) {
	var l locker
	if err := w.session.control.QueryRow(ctx, query, what).Scan(&l.process, &l.application, &l.since); err != nil {
		return // it has ended meanwhile
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.locker = l
}

// lockedBy is who had something locked when this process last met a lock in this run.
func (m *policyMemory) lockedBy() *locker {
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.locker
	return &l
}
