package executor

import "context"

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
