package resolve

import (
	"context"
	"fmt"

	"lapse/planner/database"
	"lapse/planner/expiry"
)

// meanings records what the columns that where and expression read mean: labels of enums, collations and casts can change without the table.
// Without a catalog, as in a draft, the meaning is unknown.
func (s *resolution) meanings(ctx context.Context, t *database.Table) error {
	var reads []*expiry.Column
	if w := s.r.Definition.Where; w != nil {
		for i := range w.Columns {
			reads = append(reads, &w.Columns[i])
		}
	}
	if x, is := s.r.Definition.Expire.(*expiry.Expression); is {
		for i := range x.Reads {
			reads = append(reads, &x.Reads[i])
		}
	}
	if len(reads) == 0 {
		return nil
	}
	var known bool
	err := s.tx.QueryRow(ctx, `select coalesce(has_schema_privilege('lapse', 'usage')
		and has_function_privilege(to_regprocedure('lapse.meaning(oid,oid)'), 'execute'), false)
		from pg_namespace where nspname = 'lapse' union all select false limit 1`).Scan(&known)
	if err != nil || !known {
		return err
	}
	for _, c := range reads {
		err := s.tx.QueryRow(ctx, `select lapse.meaning(a.atttypid, a.attcollation) from pg_attribute a where a.attrelid = $1 and a.attnum = $2`,
			t.OID, c.Number).Scan(&c.Means)
		if err != nil {
			return fmt.Errorf("find what column %s means: %w", c.Name, err)
		}
	}
	return nil
}
