package setup

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"lapse/schemas"
)

// RolesStayError says that a login may not drop the roles that deleted, so that the catalog, which names them, could not go.
type RolesStayError struct {
	Login string
	Roles []string
}

// Error says what to do.
func (e *RolesStayError) Error() string {
	return fmt.Sprintf("nothing was changed: login %q may not drop the roles that deleted, or not take away what they were granted: %s: "+
		"run lapse uninstall --execute with a superuser's login, or have a superuser run what lapse uninstall prints", e.Login, list(e.Roles))
}

// stayingSQL lists the deleters that the session's login may not drop, leaving out those that another database of the cluster needs. Who
// drops a role has CREATEROLE, and from PostgreSQL 16 on its admin option, and takes from it first what it was granted on others' objects.
const stayingSQL = `
	select r.rolname::text
	  from lapse.deleter d
	  join pg_roles r on r.rolname = d.role
	  join pg_roles u on u.rolname = session_user
	 where not u.rolsuper
	   and not exists (select from pg_shdepend s
	                    where s.refclassid = 'pg_catalog.pg_authid'::regclass and s.refobjid = r.oid
	                      and s.dbid not in (0, (select oid from pg_database where datname = current_database())))
	   and (not u.rolcreaterole
	        or current_setting('server_version_num')::int >= 160000 and not pg_has_role(u.oid, r.oid, 'member with admin option')
	        or exists (select
	                     from pg_shdepend s
	                     left join pg_namespace n on s.classid = 'pg_catalog.pg_namespace'::regclass and n.oid = s.objid
	                     left join pg_class c on s.classid = 'pg_catalog.pg_class'::regclass and c.oid = s.objid
	                    where s.refclassid = 'pg_catalog.pg_authid'::regclass and s.refobjid = r.oid and s.deptype = 'a'
	                      and s.dbid = (select oid from pg_database where datname = current_database())
	                      and coalesce(n.oid, c.relnamespace) <> 'lapse'::regnamespace
	                      and not pg_has_role(u.oid, coalesce(n.nspowner, c.relowner), 'usage')))
	 order by 1`

// refuseRoles returns a *RolesStayError where a deleter would stay. It is asked before anything is dropped: without policies and slot, and
// with a catalog, a database is neither installed nor free of Lapse.
func refuseRoles(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, stayingSQL)
	if err != nil {
		return fmt.Errorf("look for roles that this login may not drop: %w", err)
	}
	staying, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("look for roles that this login may not drop: %w", err)
	}
	if len(staying) == 0 {
		return nil
	}
	for i, role := range staying {
		staying[i] = schemas.Identifier(role)
	}
	return &RolesStayError{conn.Config().User, staying}
}
