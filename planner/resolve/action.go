package resolve

import (
	"context"
	"fmt"

	"lapse/planner/database"
)

// droppableSQL is what the catalog says of table $1 and its leaves, as far as it decides about dropping them.
const droppableSQL = `
	select (select o.rolsuper from pg_class c join pg_roles o on o.oid = c.relowner where c.oid = $1),
	       count(*) filter (where exists (
	         with recursive up(relation) as (
	           select l.relation
	           union all
	           select i.inhparent from up join pg_inherits i on i.inhrelid = up.relation where up.relation <> $1
	         )
	         select from up join pg_partitioned_table t on t.partrelid = up.relation where t.partstrat = 'r'))
	  from lapse.leaves($1) l`

// action complains about a policy that drops partitions of a table that has none to drop.
func (s *resolution) action(ctx context.Context, t *database.Table) error {
	d := &s.r.Definition
	if !d.DropsPartitions() {
		return nil
	}
	var super bool
	var ranges int
	if err := s.tx.QueryRow(ctx, droppableSQL, t.OID).Scan(&super, &ranges); err != nil {
		return fmt.Errorf("check the partitions of %s: %w", t.Name, err)
	}
	switch {
	case t.Kind != "p":
		s.complain("action", fmt.Sprintf("%s has no partitions to drop: leave the action out, and its rows are deleted", t.Name))
	case super:
		s.complain("action", fmt.Sprintf("%s belongs to a superuser, and only the owner of a table may drop it: alter table %s owner to another role, its partitions too", t.Name, t.Name))
	case len(d.Expire.Joins()) > 0:
		s.complain("action", "when rows are due is in another table, which cannot be kept as it is while a partition is dropped: leave the action out")
	case s.p.Shards != nil:
		s.complain("action", "drop_partition works on whole partitions: leave shards out")
	case ranges == 0:
		s.warnings = append(s.warnings, fmt.Sprintf("no partition of %s is a range: their bounds never say that one is over, so that none is dropped and rows are deleted", t.Name))
	}
	return nil
}
