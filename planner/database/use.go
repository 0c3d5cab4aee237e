package database

import (
	"context"
	"fmt"
)

// A table is in use if others have written at least so many rows, and so many a second.
const (
	usedRows = 10_000
	usedRate = 1.0
)

// WarnOfPace warns of unlimited pace on a table that is in use, by PostgreSQL's counters of inserts and updates. It ignores deletes, and updates if
// the policy makes them, because they can be the policy's own.
func WarnOfPace(ctx context.Context, q Querier, unlimited bool, table string, leaves []Relation, updates bool) ([]string, error) {
	if !unlimited {
		return nil, nil
	}
	oids := make([]uint32, len(leaves))
	for i, l := range leaves {
		oids[i] = l.OID
	}
	var rows int64
	var rate float64
	err := q.QueryRow(ctx, `
		select s.rows, s.rows / greatest(extract(epoch from clock_timestamp() - coalesce(pg_stat_get_db_stat_reset_time(d.oid), pg_postmaster_start_time())), 1)::float8
		  from pg_database d
		 cross join (select coalesce(sum(pg_stat_get_tuples_inserted(l.oid) + case when $2 then 0 else pg_stat_get_tuples_updated(l.oid) end), 0)::bigint as rows
		               from unnest($1::oid[]) l(oid)) s
		 where d.datname = current_database()`, oids, updates).Scan(&rows, &rate)
	if err != nil {
		return nil, fmt.Errorf("ask how much %s is written to: %w", table, err)
	}
	if rows < usedRows || rate < usedRate {
		return nil, nil
	}
	return []string{fmt.Sprintf("pace: unlimited, and %s is in use: PostgreSQL counted %d rows inserted or updated, %.0f a second. While rows are deleted, the application waits many times as long; `pace: gentle`, the default, leaves it the time",
		table, rows, rate)}, nil
}
