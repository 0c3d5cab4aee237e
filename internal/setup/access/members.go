package access

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/schemas"
)

// RoleError says that one of the roles has too many rights.
type RoleError struct{ Role, Superuser string }

// Error says what to do.
func (e *RoleError) Error() string {
	is := fmt.Sprintf("is a member of the superuser %s", schemas.Identifier(e.Superuser))
	if e.Role == e.Superuser {
		is = "is a superuser"
	}
	return fmt.Sprintf("%s %s, and what runs as it runs inside deletions, beside the code of the tables' owners: "+
		"have a superuser run: %s; or name other roles with roles: { prefix: … } in lapse.yaml", schemas.Identifier(e.Role), is, e.Fix())
}

// Fix is the statement that revokes the rights.
func (e *RoleError) Fix() string {
	if e.Role == e.Superuser {
		return fmt.Sprintf("alter role %s nosuperuser", schemas.Identifier(e.Role))
	}
	return fmt.Sprintf("revoke %s from %s", schemas.Identifier(e.Superuser), schemas.Identifier(e.Role))
}

// CheckRoles checks the existing roles. If one is a superuser, or can become one, it returns a *RoleError: the catalog's owner owns the
// functions that batches call, and running as it protects from nothing then. Other problems are warnings, because a person may trust these
// roles: members that are none of the logins, and roles that the catalog's owner is a member of, although it needs no right on any user's
// table.
//
// On 16 and later the maker of a role may grant it, and so is a member of it. CheckRoles names such a member unless it is this session's
// login, or could change the catalog anyway because it also made the catalog's owner.
func CheckRoles(ctx context.Context, q database.Querier, roles schemas.Roles, logins ...Logins) (warnings []string, err error) {
	known := []string{roles.Login}
	for _, l := range logins {
		known = append(known, l.Names()...)
	}
	names := []string{roles.Owner, roles.Executor, roles.Auditor}
	var role, superuser string
	err = q.QueryRow(ctx, `
		select coalesce(min(found.role), ''), coalesce(min(found.superuser), '')
		  from (select r.rolname::text, s.rolname::text
		          from pg_roles r
		          join pg_roles s on s.rolsuper and pg_has_role(r.oid, s.oid, 'member')
		         where r.rolname = any ($1)
		         order by r.rolname, s.oid <> r.oid, s.rolname
		         limit 1) found(role, superuser)`, names).Scan(&role, &superuser)
	if err != nil {
		return nil, fmt.Errorf("check the roles: %w", err)
	}
	if role != "" {
		return nil, &RoleError{Role: role, Superuser: superuser}
	}
	rows, err := q.Query(ctx, `
		with membership as (
		  select g.rolname as role, u.rolname as member, u.rolsuper as super,
		         coalesce((to_jsonb(m) ->> 'inherit_option')::boolean or (to_jsonb(m) ->> 'set_option')::boolean
		                    or m.admin_option and u.rolname <> session_user
		                       and not exists (select from pg_roles o where o.rolname = $3 and pg_has_role(u.oid, o.oid, 'member')), true) as used
		    from pg_auth_members m
		    join pg_roles g on g.oid = m.roleid
		    join pg_roles u on u.oid = m.member
		)
		select distinct format('%I is a member of %I, and no login of these settings: if that is not meant, run: revoke %2$I from %1$I', m.member, m.role)
		  from membership m
		 where m.role = any ($1) and m.member <> all ($2) and m.member <> all ($1) and m.used and not m.super
		union all
		select distinct format('%I is a member of %I, and needs no right of it: revoke %2$I from %1$I', m.member, m.role)
		  from membership m
		 where m.member = $3 and m.role <> all ($1) and m.used
		 order by 1`, names, known, roles.Owner)
	if err != nil {
		return nil, fmt.Errorf("look for members of the roles: %w", err)
	}
	if warnings, err = pgx.CollectRows(rows, pgx.RowTo[string]); err != nil {
		return nil, fmt.Errorf("look for members of the roles: %w", err)
	}
	return warnings, nil
}

// LoginOfPower warns if the deleting login can become the catalog's owner; "" if it cannot. Code of a table's owner that gets into a batch
// could then, at COMMIT, become it too. One login for everything is fine if all tables belong to people who trust each other.
func LoginOfPower(ctx context.Context, q database.Querier, roles schemas.Roles, executor string) (string, error) {
	var powerful bool
	err := q.QueryRow(ctx, `select exists (select from pg_roles o, pg_roles e where o.rolname = $1 and e.rolname = $2 and not e.rolsuper and pg_has_role(e.oid, o.oid, 'member'))`,
		roles.Owner, executor).Scan(&powerful)
	if err != nil {
		return "", fmt.Errorf("check the login that deletes: %w", err)
	}
	if !powerful {
		return "", nil
	}
	return fmt.Sprintf("the login that deletes, %s, can become the catalog's owner, %s; where tables have owners that do not trust one another, name three logins in database:, see docs/security.md",
		schemas.Identifier(executor), schemas.Identifier(roles.Owner)), nil
}

// LoginTrouble says why init does not use an existing role named roles.Login as the login of everything else, or "". All its users would
// get the memberships and the attribute.
func LoginTrouble(ctx context.Context, q database.Querier, roles schemas.Roles) (string, error) {
	var trouble string
	err := q.QueryRow(ctx, `
		select case when r.rolsuper then 'is a superuser'
		            when not r.rolcanlogin then 'may not log in'
		            when u.member is not null then format('has a member, %I', u.member)
		            else '' end
		  from pg_roles r
		  left join lateral (
		    select min(w.rolname) as member
		      from pg_auth_members m join pg_roles w on w.oid = m.member
		     where m.roleid = r.oid and not w.rolsuper
		       and coalesce((to_jsonb(m) ->> 'inherit_option')::boolean or (to_jsonb(m) ->> 'set_option')::boolean
		                    or m.admin_option and w.rolname <> session_user
		                       and not exists (select from pg_roles o where o.rolname = $2 and pg_has_role(w.oid, o.oid, 'member')), true)
		  ) u on true
		 where r.rolname = $1`, roles.Login, roles.Owner).Scan(&trouble)
	if err != nil {
		return "", fmt.Errorf("check role %s: %w", roles.Login, err)
	}
	return trouble, nil
}
