package planner

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"lapse/schemas"
)

// GrantError says which statement somebody with the right to do so must run before the policy can be applied.
type GrantError struct {
	SQL   string
	Why   string
	Cause error // what PostgreSQL said when this session tried, or nil
}

// Error ends with the statement.
func (e *GrantError) Error() string {
	return fmt.Sprintf("%s, and this session may not change that; as a superuser, run: %s;", e.Why, e.SQL)
}

// Unwrap returns what PostgreSQL said.
func (e *GrantError) Unwrap() error { return e.Cause }

// access is what the deleter may do with a policy's table.
type access struct {
	Owns  bool // has the owner's rights
	Unfit bool // the owner is a role that the deleter must not be a member of
	// Schemas are those of the table and its leaves that the deleter may not use, quoted.
	Schemas []string
	// The first leaf that the deleter cannot work on, with its owner; and the first on which row security blinds it.
	Refused, RefusedOwner, Blind string
}

const accessSQL = `
	with leaf as (
	  select format('%I.%I', n.nspname, r.relname) as name, pg_get_userbyid(r.relowner) as owner,
	         has_table_privilege(d.oid, r.oid, 'select') and has_table_privilege(d.oid, r.oid, 'delete')
	           and has_column_privilege(d.oid, r.oid, $4, 'update') as granted,
	         r.relrowsecurity and (r.relforcerowsecurity or not pg_has_role(d.oid, r.relowner, 'usage')) and not d.rolbypassrls as blind
	    from unnest($3::oid[]) l(oid)
	    join pg_class r on r.oid = l.oid
	    join pg_namespace n on n.oid = r.relnamespace
	    join pg_roles d on d.rolname = $2
	)
	select pg_has_role(d.oid, o.oid, 'usage'),
	       o.rolsuper or pg_has_role(o.oid, d.oid, 'member') or o.rolname = 'pg_database_owner',
	       array(select distinct quote_ident(s.nspname)
	               from pg_class k join pg_namespace s on s.oid = k.relnamespace
	              where k.oid = any ($3::oid[] || c.oid) and not has_schema_privilege(d.oid, s.oid, 'usage')),
	       coalesce((select min(name) from leaf where not granted), ''),
	       coalesce((select (array_agg(owner order by name))[1] from leaf where not granted), ''),
	       coalesce((select min(name) from leaf where blind), '')
	  from pg_class c
	  join pg_roles o on o.oid = c.relowner
	  join pg_roles d on d.rolname = $2
	 where c.oid = $1`

// MissingAccess reports whether EnsureMembership has something to do for a policy that is in force: a partition was made
// since, or a right was taken away.
func MissingAccess(ctx context.Context, q Querier, r *Resolved, roles schemas.Roles) (bool, error) {
	a, err := readAccess(ctx, q, r, roles)
	return len(a.Schemas) > 0 || a.Refused != "" || a.Blind != "", err
}

// EnsureMembership sees to it that the deletion functions may work on the policy's table: the deleter becomes a member of
// the table's owner, so that partitions made later are covered and row security does not apply. Where the session may
// not grant that, the error is a GrantError with the statement. Safe to repeat; Write calls it.
//
// If the owner is a superuser, or already has the deleter's rights, membership would give away far more than a table,
// or go in a circle: then the deleter gets the rights on the table and on each partition that is there. For a partition
// made later `lapse apply` must be run again; until then batches on it are refused.
func EnsureMembership(ctx context.Context, tx pgx.Tx, r *Resolved, roles schemas.Roles) error {
	a, err := readAccess(ctx, tx, r, roles)
	if err != nil {
		return err
	}
	deleter := identifier(roles.Deleter)
	for _, schema := range a.Schemas {
		err := grant(ctx, tx, fmt.Sprintf("grant usage on schema %s to %s", schema, deleter),
			fmt.Sprintf("%s may not use schema %s", roles.Deleter, schema))
		if err != nil {
			return err
		}
	}
	switch {
	case a.Owns:
	case a.Unfit:
		err = grantTable(ctx, tx, r, roles)
	default:
		err = grantMembership(ctx, tx, r, roles)
	}
	if err != nil {
		return err
	}
	if a, err = readAccess(ctx, tx, r, roles); err != nil {
		return err
	}
	return a.refusal(r, roles)
}

// refusal is what no grant of this session's has settled.
func (a *access) refusal(r *Resolved, roles schemas.Roles) error {
	switch {
	case a.Refused != "" && a.RefusedOwner != r.TableOwner:
		return &GrantError{
			SQL: fmt.Sprintf("alter table %s owner to %s", a.Refused, identifier(r.TableOwner)),
			Why: fmt.Sprintf("partition %s belongs to %s and its root to %s", a.Refused, a.RefusedOwner, r.TableOwner),
		}
	case a.Refused != "":
		return &GrantError{
			SQL: fmt.Sprintf("alter role %s inherit", identifier(roles.Deleter)),
			Why: fmt.Sprintf("%s is a member of %s and does not inherit its rights", roles.Deleter, r.TableOwner),
		}
	case a.Blind != "":
		return &GrantError{
			SQL: fmt.Sprintf("alter role %s bypassrls", identifier(roles.Deleter)),
			Why: fmt.Sprintf("row security applies to %s on %s, so that it would not see every row", roles.Deleter, a.Blind),
		}
	}
	return nil
}

func readAccess(ctx context.Context, q Querier, r *Resolved, roles schemas.Roles) (access, error) {
	oids := make([]uint32, 0, len(r.Leaves))
	for _, l := range r.Leaves {
		oids = append(oids, l.OID)
	}
	all, err := collect[access](ctx, q, accessSQL, r.TableOID, roles.Deleter, oids, r.Definition.Column)
	if err != nil {
		return access{}, fmt.Errorf("read what %s may do on %s: %w", roles.Deleter, r.Definition.Table, err)
	}
	if len(all) == 0 {
		return access{}, fmt.Errorf("role %s or table %s is gone: run `lapse init`", roles.Deleter, r.Definition.Table)
	}
	return all[0], nil
}

// grantMembership makes the deleter a member of the table's owner. From PostgreSQL 16 on, inheriting is a property of the
// membership, and so is the right to become the owner, which the deleter does not need.
func grantMembership(ctx context.Context, tx pgx.Tx, r *Resolved, roles schemas.Roles) error {
	var version int
	if err := tx.QueryRow(ctx, `select current_setting('server_version_num')::int`).Scan(&version); err != nil {
		return err
	}
	sql := fmt.Sprintf("grant %s to %s", identifier(r.TableOwner), identifier(roles.Deleter))
	if version >= 160000 {
		sql += " with inherit true, set false"
	}
	return grant(ctx, tx, sql, fmt.Sprintf("%s is not a member of %s, which owns %s", roles.Deleter, r.TableOwner, r.Definition.Table))
}

func grantTable(ctx context.Context, tx pgx.Tx, r *Resolved, roles schemas.Roles) error {
	for _, relation := range append([]Relation{{OID: r.TableOID, Name: r.Definition.Table}}, r.Leaves...) {
		sql := fmt.Sprintf("grant select, delete, update (%s) on %s to %s",
			identifier(r.Definition.Column), relation.Name, identifier(roles.Deleter))
		err := grant(ctx, tx, sql, fmt.Sprintf("%s may not delete from %s, whose owner %s is too powerful to be a member of",
			roles.Deleter, relation.Name, r.TableOwner))
		if err != nil {
			return err
		}
	}
	return nil
}

// grant tries a statement in a savepoint.
func grant(ctx context.Context, tx pgx.Tx, sql, why string) error {
	err := pgx.BeginFunc(ctx, tx, func(inner pgx.Tx) error {
		_, err := inner.Exec(ctx, sql)
		return err
	})
	var refused *GrantError
	switch {
	case err == nil:
		return nil
	case hasCode(err, "42501", "0LP01"):
		refused = &GrantError{SQL: sql, Why: why, Cause: err}
		return refused
	case errors.Is(err, context.Canceled):
		return err
	}
	return fmt.Errorf("%s: %w", sql, err)
}
