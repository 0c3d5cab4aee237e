package record

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/planner/functions"
	"lapse/schemas"
)

// RowSecurityError says that row security would hide rows from the role that deletes for a policy. Its batches run with row_security off, so
// PostgreSQL refuses them.
type RowSecurityError struct {
	Deleter string
	Table   string // the table or partition, as written in SQL
}

// Error says what to do.
func (e *RowSecurityError) Error() string { return e.Problem() + ": have a superuser run: " + e.Fix() }

// Problem says what is wrong.
func (e *RowSecurityError) Problem() string {
	return fmt.Sprintf("row security applies to %s on %s, so that it does not see every row, and its batches are errors", e.Deleter, e.Table)
}

// Fix is the statement that lets the role see every row.
func (e *RowSecurityError) Fix() string {
	return fmt.Sprintf("alter role %s bypassrls", schemas.Identifier(e.Deleter))
}

// BehindRowSecurity returns a *RowSecurityError if row security keeps a policy from its table, otherwise nil. The owner of the version's deletion
// function is the deleter. It reads no rows.
func (p *InForce) BehindRowSecurity(ctx context.Context, q database.Querier) (*RowSecurityError, error) {
	var e RowSecurityError
	err := q.QueryRow(ctx, `
		select d.rolname::text, format('%I.%I', n.nspname, c.relname)
		  from pg_proc f
		  join pg_roles d on d.oid = f.proowner
		 cross join (select $2::oid as relation union select l.relation from lapse.leaves($2::oid) l) t
		  join pg_class c on c.oid = t.relation
		  join pg_namespace n on n.oid = c.relnamespace
		 where f.pronamespace = 'lapse'::regnamespace and f.proname = $1 and c.relrowsecurity and not d.rolbypassrls and not d.rolsuper
		   and (c.relforcerowsecurity or not pg_has_role(d.oid, c.relowner, 'usage'))
		 order by c.oid
		 limit 1`, strings.TrimPrefix(functions.DeleteFunction(p.ID, p.Version), "lapse."), p.TableOID).Scan(&e.Deleter, &e.Table)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look whether row security is in the way: %w", err)
	}
	return &e, nil
}
