package survey

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
)

// catalogHoldsSQL says whether there are tables of holds that certainly are the catalog's, so that reading them runs no foreign code, and whether
// this login may read them.
const catalogHoldsSQL = `
	select has_schema_privilege(n.oid, 'usage') and has_table_privilege(h.oid, 'select') and has_table_privilege(s.oid, 'select')
	  from pg_namespace n
	  join pg_class h on h.relnamespace = n.oid and h.relname = 'hold' and h.relkind = 'r'
	  join pg_class s on s.relnamespace = n.oid and s.relname = 'hold_state' and s.relkind = 'r'
	  join pg_roles o on o.oid = n.nspowner and o.oid = h.relowner and o.oid = s.relowner
	 where n.nspname = 'lapse' and o.rolname = $1`

// holdsOnSQL counts the holds that are enforced on any of relations $1.
const holdsOnSQL = `
	select count(*)
	  from lapse.hold h
	 cross join lateral (select s.state, s.enforced_until from lapse.hold_state s where s.hold = h.id order by s.id desc limit 1) s
	 where s.state <> 'released' and coalesce(s.enforced_until > clock_timestamp(), true) and exists (
	     select from lapse.hold_relation r where r.hold = h.id and r.relation = any ($1))`

// warnOfDraft says what the survey of a policy that is not applied leaves out: it uses a function in this session's temporary schema, which knows
// no holds.
func (s *surveyor) warnOfDraft(ctx context.Context, q database.Querier, relations []database.Relation) error {
	v := &s.survey
	if v.Version > 0 {
		return nil
	}
	var may bool
	err := q.QueryRow(ctx, catalogHoldsSQL, s.owner).Scan(&may)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil // without a catalog there are no holds
	case err != nil:
		return fmt.Errorf("look for holds: %w", err)
	case !may:
		v.Warnings = append(v.Warnings, "whether rows are held is not checked: this login may not read the holds")
		return nil
	}
	oids := []uint32{s.table}
	for _, r := range relations {
		oids = append(oids, r.OID)
	}
	var holds int64
	if err := q.QueryRow(ctx, holdsOnSQL, oids).Scan(&holds); err != nil {
		return fmt.Errorf("count the holds: %w", err)
	}
	if holds > 0 {
		v.Warnings = append(v.Warnings, fmt.Sprintf(
			"holds in force on its table or on what a cascade deletes: %d; what they hold is counted as due here, and stays: `lapse plan` tells it apart when the policy is applied", holds))
	}
	return nil
}
