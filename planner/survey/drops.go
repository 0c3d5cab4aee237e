package survey

import (
	"context"
	"fmt"

	"lapse/planner/database"
	"lapse/planner/functions"
)

// Drop is a partition that would be dropped whole.
type Drop struct {
	Name string `json:"name"`
	Rows *int64 `json:"rows,omitempty"` // by the catalog's estimate; nil if there is none
}

// dropsSQL lists the leaves of table $1 that may be dropped whole at cutoff $2, as far as the catalog shows: the end of their range of column $3 is
// compared with the bound. It reads no rows.
const dropsSQL = `
	select l.name, case when c.reltuples >= 0 then c.reltuples::bigint end
	  from lapse.leaves($1) l
	  join pg_class c on c.oid = l.relation
	 cross join lateral lapse.part_of($1, l.relation, $2, $3) p
	 where p.why is null and (p.upper is null or %s) and c.reltuples <> 0
	 order by c.oid`

// drops finds the partitions that would be dropped whole, if the policy does that.
func (s *surveyor) drops(ctx context.Context, q database.Querier) error {
	if !s.definition.DropsPartitions() {
		return nil
	}
	column, cast := s.definition.DueColumn()
	within := "true"
	if cast != "" {
		within = "p.upper::" + cast + " <= (" + functions.BoundOf(s.definition.Expire, "$2::timestamptz").Value + ")"
	}
	all, err := database.Collect[Drop](ctx, q, fmt.Sprintf(dropsSQL, within), s.table, s.survey.At, column)
	if err != nil {
		return fmt.Errorf("ask which partitions would be dropped: %w", err)
	}
	s.survey.Drops = all
	return nil
}
