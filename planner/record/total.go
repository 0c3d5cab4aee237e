package record

import (
	"context"
	"fmt"

	"lapse/planner/database"
	"lapse/schemas"
)

// Total is what all runs of a policy in force deleted, including runs that are no longer on record.
type Total struct {
	Policy            schemas.PolicyName
	Table             string
	Deleted, Cascaded int64
}

// Totals returns the total of each policy in force.
func Totals(ctx context.Context, q database.Querier) ([]Total, error) {
	all, err := database.Collect[Total](ctx, q, `
		select g.name, p.table_name, coalesce(sum(x.deleted), 0)::bigint, coalesce(sum(x.cascaded), 0)::bigint
		  from lapse.gate g
		  join lapse.policy p on p.id = g.policy_id and p.version = g.version
		  left join (
		    select r.policy_id, r.deleted + r.former_deleted as deleted, r.cascaded + r.former_cascaded as cascaded from lapse.run r
		     union all
		    select s.policy_id, s.deleted, s.cascaded from lapse.shard s) x on x.policy_id = g.policy_id
		 where g.state <> 'dropped'
		 group by g.name, p.table_name`)
	if err != nil {
		return nil, fmt.Errorf("count what was deleted before: %w", err)
	}
	return all, nil
}
