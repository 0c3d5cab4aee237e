package guard

import (
	"context"
	"fmt"
	"time"

	"lapse/schemas"
)

// load is the server's load apart from our batches. What the login may not see is missing.
type load struct {
	Flushed schemas.LSN `json:"flushed"`
	// The slot: where its log begins, and how much more may be written before it is lost; nil if there is no limit.
	Restart schemas.LSN `json:"restart"`
	Safe    *int64      `json:"safe"`

	Replicas []replica `json:"replicas"`
	Waiting  int       `json:"waiting"` // sessions that wait for a lock of this executor's batches
	// Client connections in use, and how many there may be, without the reserved ones.
	Connections    int `json:"connections"`
	MaxConnections int `json:"max_connections"`
	// Oldest is the age, in seconds, of the oldest snapshot or prepared transaction of this database.
	Oldest float64 `json:"oldest"`
}

// replica is a streaming standby.
type replica struct {
	Name   string      `json:"name"`
	Replay schemas.LSN `json:"replay"`
}

// loadColumn reads the load as one value; s is the slot in the catalog. Walsenders of logical slots, base backups and log archivers replay
// nothing, so they are no standbys. A login without pg_read_all_stats sees neither standbys nor other sessions' snapshots. VACUUM's own
// snapshots hold nothing back.
//
// pg_blocking_pids blocks all locking on the server while it runs, once for each session asked about. So the query reads pg_locks once, and
// asks only about sessions that wait for something that one of our sessions holds or waits for too.
const loadColumn = `jsonb_build_object(
	         'flushed', pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0'),
	         'restart', coalesce(pg_wal_lsn_diff(s.restart_lsn, '0/0'), 0), 'safe', s.safe_wal_size,
	         'replicas', (
	           select coalesce(jsonb_agg(jsonb_build_object('name', r.application_name, 'replay', pg_wal_lsn_diff(r.replay_lsn, '0/0'))), '[]')
	             from pg_stat_replication r
	            where r.replay_lsn is not null and r.state in ('streaming', 'catchup')
	              and not exists (select from pg_replication_slots l where l.slot_type = 'logical' and l.active_pid = r.pid)),
	         'waiting', (
	           with lock as materialized (
	             select k.pid, k.granted, k.locktype,
	                    row(k.database, k.relation, k.page, k.tuple, k.virtualxid, k.transactionid, k.classid, k.objid, k.objsubid) as tag
	               from pg_locks k where cardinality($2::int[]) > 0),
	           waiter as materialized (
	             select distinct w.pid
	               from lock w
	               join lock o on o.locktype = w.locktype and o.tag is not distinct from w.tag and o.pid = any ($2::int[])
	              where not w.granted and w.pid <> all ($2::int[])
	                and not exists (select from pg_stat_get_activity(w.pid) a where a.application_name like 'lapse %'))
	           select count(*) from waiter w where pg_blocking_pids(w.pid) && $2::int[]),
	         'connections', (
	           select count(*) from pg_stat_get_activity(null) a
	            where a.datid <> 0 and a.usesysid <> 0 and coalesce(a.backend_type, 'client backend') = 'client backend'),
	         'max_connections', current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
	                            - coalesce(current_setting('reserved_connections', true), '0')::int,
	         'oldest', (
	           select coalesce(extract(epoch from clock_timestamp() - min(o.since)), 0)
	             from (select a.xact_start from pg_stat_get_activity(null) a
	                    where a.backend_xmin is not null and a.backend_type = 'client backend' and upper(left(ltrim(a.query), 6)) <> 'VACUUM'
	                      and a.datid = (select d.oid from pg_database d where d.datname = current_database())
	                    union all
	                   select x.prepared from pg_prepared_xacts x where x.database = current_database()) o(since)))`

// progress remembers how much the server had written at which time, so that a standby's lag can be told as time, whether it moves or not.
type progress struct{ written []written }

type written struct {
	at    time.Time
	until schemas.LSN
}

// mostWritten is the length from which the list is thinned: the older the entries, the coarser, down to a sixteenth of their age.
const mostWritten = 512

func (p *progress) add(until schemas.LSN, at time.Time) {
	if n := len(p.written); n > 0 && until <= p.written[n-1].until {
		return
	}
	p.written = append(p.written, written{at, until})
	if len(p.written) < mostWritten {
		return
	}
	kept := p.written[:1]
	for i := 1; i < len(p.written); i++ {
		w := p.written[i]
		if i == len(p.written)-1 || p.written[i+1].at.Sub(kept[len(kept)-1].at) > at.Sub(w.at)/16 {
			kept = append(kept, w)
		}
	}
	p.written = kept
}

// behind returns the least age of the first write above a position.
func (p *progress) behind(position schemas.LSN, now time.Time) time.Duration {
	for _, w := range p.written {
		if w.until > position {
			return now.Sub(w.at)
		}
	}
	return 0
}

// Table is PostgreSQL's statistics of a policy's table, summed over its partitions.
type Table struct {
	Dead, Live int64
	Trigger    float64 // the number of dead rows that starts autovacuum
}

const tableQuery = `
	select coalesce(sum(pg_stat_get_dead_tuples(l.relation)), 0)::bigint, coalesce(sum(pg_stat_get_live_tuples(l.relation)), 0)::bigint,
	       coalesce(sum(coalesce((select o.option_value::float8 from pg_options_to_table(c.reloptions) o where o.option_name = 'autovacuum_vacuum_threshold'),
	                             current_setting('autovacuum_vacuum_threshold')::float8)
	                    + coalesce((select o.option_value::float8 from pg_options_to_table(c.reloptions) o where o.option_name = 'autovacuum_vacuum_scale_factor'),
	                               current_setting('autovacuum_vacuum_scale_factor')::float8) * pg_stat_get_live_tuples(l.relation)), 0)
	  from lapse.leaves($1) l
	  join pg_class c on c.oid = l.relation`

// ReadTable reads the statistics of a table. It needs no right on it.
func ReadTable(ctx context.Context, q Querier, table uint32) (*Table, error) {
	var t Table
	if err := q.QueryRow(ctx, tableQuery, table).Scan(&t.Dead, &t.Live, &t.Trigger); err != nil {
		return nil, fmt.Errorf("read the statistics of a table: %w", err)
	}
	return &t, nil
}
