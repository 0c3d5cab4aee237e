package executor

import "context"

const (
	// rowLocker finds a process.
	rowLocker = `select a.pid, left(coalesce(a.application_name, ''), 63), a.xact_start from pg_stat_activity a where a.pid = $1`
	// tableLocker finds who has a lock on a relation that keeps writers out, or waits for one: a session, or a prepared transaction, which
	// has no process. Of one partition of a table from which rows are deleted by cascade others may be free.
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

// rowsLocked records which process has rows locked that a batch left.
func (w *worker) rowsLocked(ctx context.Context, m *policyMemory, process int32) {
	if m.locks.by().process != process {
		w.findLocker(ctx, m, rowLocker, process)
	}
}

// tableLocked reports whether somebody has all of a leaf locked, or of a table from which rows would be deleted by cascade, or waits for that, and records who.
func (w *worker) tableLocked(ctx context.Context, m *policyMemory, leaf uint32, cascades []uint32) bool {
	return w.findLocker(ctx, m, tableLocker, leaf, cascades)
}

// findLocker asks, and reports whether there is one. What was known stays if there is none.
func (w *worker) findLocker(ctx context.Context, m *policyMemory, query string, what ...any) bool {
	var l locker
	if err := w.session.Control.QueryRow(ctx, query, what...).Scan(&l.process, &l.application, &l.since); err != nil {
		return false // it has ended meanwhile
	}
	m.locks.found(l)
	return true
}
