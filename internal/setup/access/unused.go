package access

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/schemas"
)

// UnusedDeleters are the deleters on record that own no function in this database, by name: the last policy of their owner was dropped.
func UnusedDeleters(ctx context.Context, q database.Querier) ([]string, error) {
	rows, _ := q.Query(ctx, `
		select d.role::text
		  from lapse.deleter d
		 where not exists (select from pg_proc f join pg_roles o on o.oid = f.proowner
		                    where f.pronamespace = 'lapse'::regnamespace and o.rolname = d.role)
		 order by 1`) // CollectRows has its error
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look for deleters that are not needed: %w", err)
	}
	return names, nil
}

// DropUnusedDeleters removes the deleters that own no function any more, with their memberships and rights, as well as it can: after the
// transaction that dropped an owner's last policy, each in a transaction of its own. If a deleter remains, because this login may not drop
// roles, or because another database of the cluster has functions of it, it returns a warning that says what to do; the deleter stays in
// lapse.deleter, and the next call tries again.
//
// conn may act as the catalog's owner. Safe to repeat, and to run beside an apply that needs the deleter again: the two wait for each other.
//
//	crash before a commit    the deleter is there whole, and owns nothing
func DropUnusedDeleters(ctx context.Context, conn *pgx.Conn, roles schemas.Roles) (warnings []string, err error) {
	names, err := UnusedDeleters(ctx, conn)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		var warning string
		err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) (err error) {
			d := &dropping{tx: tx, roles: roles, name: name}
			warning, err = d.drop(ctx)
			return err
		})
		if err != nil {
			return warnings, fmt.Errorf("drop role %s, which deletes nothing any more: %w", name, err)
		}
		if warning != "" {
			warnings = append(warnings, warning)
		}
	}
	return warnings, nil
}

// excessRight is a right of a deleter's that no policy in force needs, and the statement that revokes it.
type excessRight struct{ Role, SQL string }

// excessRightsSQL lists what deleters were granted on tables and schemas, one by one, for policies that are gone. A deleter needs the
// tables of its owner's policies, their partitions, and the schemas of both.
const excessRightsSQL = `
	with recursive needed(owner, oid) as (
	  select (p.spec ->> 'table_owner')::oid, g.table_oid
	    from lapse.gate g join lapse.policy p on p.id = g.policy_id and p.version = g.version
	   where g.state <> 'dropped'
	  union
	  select needed.owner, i.inhrelid from needed join pg_inherits i on i.inhparent = needed.oid
	)
	select d.role::text, 'revoke all on ' || case when n.oid is not null then 'schema ' || quote_ident(n.nspname)
	                                              else format('table %I.%I', k.nspname, c.relname) end || ' from ' || quote_ident(r.rolname)
	  from lapse.deleter d
	  join pg_roles r on r.rolname = d.role
	  join pg_shdepend s on s.refobjid = r.oid and s.refclassid = 'pg_catalog.pg_authid'::regclass and s.deptype = 'a'
	   and s.dbid = (select oid from pg_database where datname = current_database())
	  left join pg_namespace n on s.classid = 'pg_catalog.pg_namespace'::regclass and n.oid = s.objid
	  left join pg_class c on s.classid = 'pg_catalog.pg_class'::regclass and c.oid = s.objid
	  left join pg_namespace k on k.oid = c.relnamespace
	 where coalesce(n.nspname, k.nspname) <> 'lapse'
	   and not exists (select from needed join pg_class t on t.oid = needed.oid
	                    where needed.owner = d.owner and (t.oid = c.oid or t.relnamespace = n.oid))
	 group by d.role, n.oid, n.nspname, k.nspname, c.relname, r.rolname
	 order by d.role, n.oid is not null, 2`

func excessRights(ctx context.Context, q database.Querier) ([]excessRight, error) {
	rows, _ := q.Query(ctx, excessRightsSQL) // CollectRows has its error
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[excessRight])
	if err != nil {
		return nil, fmt.Errorf("look for rights that no policy needs: %w", err)
	}
	return all, nil
}

// RevokeExcessRights revokes from the deleters the rights that no policy needs any more, as well as it can, in the login's own name, while
// no other session uses a deleter. What stays is a warning with its statement; the next call tries again.
func RevokeExcessRights(ctx context.Context, conn *pgx.Conn, roles schemas.Roles) (warnings []string, err error) {
	if excess, err := excessRights(ctx, conn); err != nil || len(excess) == 0 {
		return nil, err
	}
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		d := &dropping{tx: tx, roles: roles}
		if err := Become(ctx, tx, roles.Owner); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, lockDeleters); err != nil {
			return err
		}
		excess, err := excessRights(ctx, tx)
		if err != nil {
			return err
		}
		if err := Become(ctx, d.tx, ""); err != nil {
			return err
		}
		for _, x := range excess {
			if _, err := d.try(ctx, x.SQL); err != nil && schemas.StateOf(err) != schemas.SQLStateLockNotAvailable {
				return fmt.Errorf("%s: %w", x.SQL, err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("revoke rights that no policy needs: %w", err)
	}
	left, err := excessRights(ctx, conn) // PostgreSQL only warns a role that may not revoke a right
	for _, x := range left {
		warnings = append(warnings, fmt.Sprintf("role %s has a right that no policy needs any more: have a superuser run: %s", x.Role, x.SQL))
	}
	return warnings, err
}

// dropping drops one deleter.
type dropping struct {
	tx    pgx.Tx
	roles schemas.Roles
	name  string
	owner string // the owner of the tables that it deleted from, "" if that role is gone
}

func (d *dropping) drop(ctx context.Context) (warning string, err error) {
	needed, exists, err := d.find(ctx)
	if err != nil || needed {
		return "", err
	}
	if !exists {
		return "", d.forget(ctx)
	}
	if err := d.strip(ctx); err != nil {
		return "", err
	}
	switch state, err := d.try(ctx, "drop role "+schemas.Identifier(d.name)); {
	case err != nil:
		return "", err
	case state == "":
		return "", d.forget(ctx)
	case state == schemas.SQLStateDependentObjectsStill:
		warning, _, err = d.stays(ctx)
		return warning, err
	}
	// The membership is the most valuable right of the role.
	if d.owner != "" {
		if _, err := d.try(ctx, "revoke "+schemas.Identifier(d.owner)+" from "+schemas.Identifier(d.name)); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("role %s deletes nothing any more, and this login may not drop it: have a superuser run: drop role %s",
		d.name, schemas.Identifier(d.name)), nil
}

// find waits for sessions that need the deleter, and checks again.
func (d *dropping) find(ctx context.Context) (needed, exists bool, err error) {
	if err := Become(ctx, d.tx, d.roles.Owner); err != nil {
		return false, false, err
	}
	if _, err := d.tx.Exec(ctx, lockDeleters); err != nil {
		return false, false, err
	}
	err = d.tx.QueryRow(ctx, `
		select not exists (select from lapse.deleter d where d.role = $1)
		       or exists (select from pg_proc f join pg_roles o on o.oid = f.proowner
		                   where f.pronamespace = 'lapse'::regnamespace and o.rolname = $1),
		       exists (select from pg_roles r where r.rolname = $1),
		       coalesce((select g.rolname::text from lapse.deleter d join pg_roles g on g.oid = d.owner where d.role = $1), '')`,
		d.name).Scan(&needed, &exists, &d.owner)
	return needed, exists, err
}

// strip revokes what the role has in this database: in schema lapse as the catalog's owner, elsewhere as the login.
func (d *dropping) strip(ctx context.Context) error {
	rows, _ := d.tx.Query(ctx, `
		select distinct coalesce(coalesce(n.oid, f.pronamespace) = to_regnamespace('lapse'), false), -- gone: nothing of ours is left
		       'revoke all on ' || case when n.oid is not null then 'schema ' || quote_ident(n.nspname)
		                                when c.oid is not null then format('table %I.%I', k.nspname, c.relname)
		                                else 'function ' || f.oid::regprocedure end
		  from pg_shdepend s
		  join pg_roles r on r.oid = s.refobjid
		  left join pg_namespace n on s.classid = 'pg_catalog.pg_namespace'::regclass and n.oid = s.objid
		  left join pg_class c on s.classid = 'pg_catalog.pg_class'::regclass and c.oid = s.objid
		  left join pg_namespace k on k.oid = c.relnamespace
		  left join pg_proc f on s.classid = 'pg_catalog.pg_proc'::regclass and f.oid = s.objid
		 where s.dbid = (select oid from pg_database where datname = current_database())
		   and s.refclassid = 'pg_catalog.pg_authid'::regclass and s.deptype = 'a' and r.rolname = $1
		   and coalesce(n.oid, c.oid, f.oid) is not null`, d.name) // CollectRows has its error
	type right struct {
		Ours bool
		SQL  string
	}
	rights, err := pgx.CollectRows(rows, pgx.RowToStructByPos[right])
	if err != nil {
		return err
	}
	for _, ours := range []bool{true, false} {
		if !ours {
			if err := Become(ctx, d.tx, ""); err != nil {
				return err
			}
		}
		for _, r := range rights {
			if r.Ours != ours {
				continue
			}
			if _, err := d.try(ctx, r.SQL+" from "+schemas.Identifier(d.name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// DropDeleter drops a deleter, once the catalog is gone. It stays, with a warning, if another database of the cluster needs it.
func DropDeleter(ctx context.Context, tx pgx.Tx, name string) (warning string, err error) {
	d := &dropping{tx: tx, name: name}
	if err := d.strip(ctx); err != nil {
		return "", err
	}
	state, err := d.try(ctx, "drop role if exists "+schemas.Identifier(d.name))
	if err != nil || state == "" {
		return "", err
	}
	warning, elsewhere, err := d.stays(ctx)
	if err == nil && !elsewhere {
		err = errors.New(warning)
	}
	return warning, err
}

// stays says why the role cannot be dropped, and whether another database needs it.
func (d *dropping) stays(ctx context.Context) (warning string, elsewhere bool, err error) {
	err = d.tx.QueryRow(ctx, `
		select exists (select from pg_shdepend s join pg_roles r on r.oid = s.refobjid
		                where s.refclassid = 'pg_catalog.pg_authid'::regclass and r.rolname = $1
		                  and s.dbid not in (0, (select oid from pg_database where datname = current_database())))`, d.name).Scan(&elsewhere)
	switch {
	case err != nil:
		return "", false, err
	case elsewhere:
		return fmt.Sprintf("role %s deletes nothing in this database any more, and stays because another database of the cluster needs it", d.name), true, nil
	default:
		return fmt.Sprintf("role %s deletes nothing any more, and still has rights that this login may not take away: have a superuser run, "+
			"in this database: drop owned by %s; drop role %[2]s", d.name, schemas.Identifier(d.name)), false, nil
	}
}

// forget removes the role from the record.
func (d *dropping) forget(ctx context.Context) error {
	if err := Become(ctx, d.tx, d.roles.Owner); err != nil {
		return err
	}
	_, err := d.tx.Exec(ctx, `delete from lapse.deleter where role = $1`, d.name)
	return err
}

// try runs a statement in a savepoint. For a refusal it returns the SQLSTATE.
func (d *dropping) try(ctx context.Context, sql string) (state string, err error) {
	err = pgx.BeginFunc(ctx, d.tx, func(inner pgx.Tx) error {
		_, err := inner.Exec(ctx, sql)
		return err
	})
	switch state := schemas.StateOf(err); state {
	case schemas.SQLStateInsufficientPrivilege, schemas.SQLStateDependentObjectsStill, schemas.SQLStateInvalidGrantOperation:
		return state, nil
	}
	return "", err
}
