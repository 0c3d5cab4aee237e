package doctor

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/internal/setup/access"
	"lapse/schemas"
)

func (e *examination) checkRoles(ctx context.Context) ([]Finding, error) {
	if !e.roles {
		return ok("not made yet: lapse init does it, or lapse init --grants prints how"), nil
	}
	warnings, err := access.CheckRoles(ctx, e.Conn, e.Roles, e.Logins)
	var super *access.RoleError
	if errors.As(err, &super) {
		return one(Fail, []string{super.Fix()}, "%s is or can become a superuser, and its code would run inside deletions", super.Role), nil
	}
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, w := range warnings { // each ends with its statement
		at := strings.LastIndex(w, "revoke ")
		text := strings.TrimSuffix(strings.TrimSuffix(w[:at], ": "), ": if that is not meant, run")
		found = append(found, one(Warn, []string{w[at:]}, "%s", text)...)
	}
	power, err := access.LoginOfPower(ctx, e.Conn, e.Roles, e.Logins.Executor)
	if err != nil {
		return nil, err
	}
	if power != "" {
		found = append(found, one(Warn, nil, "%s", power)...)
	}
	if len(found) == 0 {
		return ok("only Lapse uses %s, %s and %s", e.Roles.Owner, e.Roles.Executor, e.Roles.Auditor), nil
	}
	return found, nil
}

// checkAttributes finds attributes that a role has but does not need: with CREATEROLE it could join the owners of tables, with BYPASSRLS or
// REPLICATION it could read more than it should.
func (e *examination) checkAttributes(ctx context.Context) ([]Finding, error) {
	if !e.roles {
		return nil, nil
	}
	rows, _ := e.Conn.Query(ctx, `
		select r.rolname::text,
		       concat_ws(' ', case when r.rolcreaterole then 'nocreaterole' end, case when r.rolcreatedb then 'nocreatedb' end,
		                 case when r.rolbypassrls then 'nobypassrls' end,
		                 case when r.rolreplication and r.rolname <> $3 then 'noreplication' end)
		  from pg_roles r
		 where r.rolname in ($1, $2, $3)`, e.Roles.Owner, e.Roles.Executor, e.Roles.Auditor) // CollectRows has its error
	type excess struct{ Role, Attributes string }
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[excess])
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, x := range all {
		if x.Attributes != "" {
			found = append(found, one(Fail, []string{"alter role " + schemas.Identifier(x.Role) + " " + x.Attributes},
				"%s has attributes that it does not need: %s", x.Role, strings.ReplaceAll(x.Attributes, "no", ""))...)
		}
	}
	if len(found) == 0 {
		return ok("none has one that it does not need"), nil
	}
	return found, nil
}

func (e *examination) checkGrants(ctx context.Context) ([]Finding, error) {
	if !e.roles {
		return nil, nil
	}
	logins := e.Logins.Names()
	missing, err := e.list(ctx, `select quote_ident(w) from unnest($1::text[]) w where not exists (select from pg_roles r where r.rolname = w)`, logins)
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		return advise(Fail, "lapse init makes them, lapse init --grants prints how", "there is no login %s, which the settings name", strings.Join(missing, ", ")), nil
	}
	bare, err := e.list(ctx, `
		select quote_ident(w) from unnest($1::text[]) w, pg_namespace n
		 where n.nspname = 'lapse' and not has_schema_privilege(w, n.oid, 'usage')`, []string{e.Roles.Executor, e.Roles.Auditor})
	if err != nil {
		return nil, err
	}
	if len(bare) > 0 {
		return advise(Fail, "run lapse init: it gives them back", "without any right in schema lapse, as a role that was dropped and made again: %s",
			strings.Join(bare, ", ")), nil
	}
	if e.installed != nil {
		lost, err := access.LostRights(ctx, e.Conn, e.Roles)
		if err != nil {
			return nil, err
		}
		if len(lost) > 0 {
			return advise(Fail, "run lapse init: it gives them back", "%s lost rights in schema lapse: %d, such as: %s", strings.Join(access.Losers(lost), " and "), len(lost), lost[0].SQL), nil
		}
	}
	statements, err := access.MissingGrants(ctx, e.Conn, e.Roles, e.Logins)
	if err != nil {
		return nil, err
	}
	if len(statements) > 0 {
		return one(Fail, statements, "the logins of the settings lack rights"), nil
	}
	return ok("%s may use the roles", strings.Join(logins, ", ")), nil
}

// checkTableRights finds rights on the tables of policies that executor, auditor and catalog's owner must not have: only the functions delete.
func (e *examination) checkTableRights(ctx context.Context) ([]Finding, error) {
	if e.installed == nil {
		return nil, nil
	}
	fix, err := e.list(ctx, `
		with recursive tree(oid) as (
		  select g.table_oid from lapse.gate g where g.state <> 'dropped'
		  union
		  select i.inhrelid from tree join pg_inherits i on i.inhparent = tree.oid
		)
		select distinct format('revoke %s on %I.%I from %s', lower(a.privilege_type), n.nspname, c.relname,
		                       case when a.grantee = 0 then 'public' else quote_ident(pg_get_userbyid(a.grantee)) end)
		  from tree
		  join pg_class c on c.oid = tree.oid
		  join pg_namespace n on n.oid = c.relnamespace
		 cross join lateral aclexplode(c.relacl) a
		  join pg_roles ours on ours.rolname = any ($1)
		 where a.privilege_type in ('DELETE', 'TRUNCATE', 'UPDATE', 'INSERT')
		   and (a.grantee = 0 or a.grantee <> c.relowner and pg_has_role(ours.oid, a.grantee, 'usage'))
		 order by 1`, []string{e.Roles.Executor, e.Roles.Auditor, e.Roles.Owner})
	if err != nil {
		return nil, err
	}
	members, err := e.list(ctx, `
		select distinct format('revoke %I from %I', pg_get_userbyid(c.relowner), ours.rolname)
		  from lapse.gate g
		  join pg_class c on c.oid = g.table_oid
		  join pg_roles ours on ours.rolname = any ($1) and pg_has_role(ours.oid, c.relowner, 'usage')
		 where g.state <> 'dropped'
		 order by 1`, []string{e.Roles.Executor, e.Roles.Auditor, e.Roles.Owner})
	if err != nil {
		return nil, err
	}
	if fix = append(fix, members...); len(fix) > 0 {
		return one(Fail, fix, "roles of Lapse may change tables of policies without the deletion functions"), nil
	}
	owners, err := e.list(ctx, `
		select distinct quote_ident(pg_get_userbyid(c.relowner))
		  from lapse.gate g
		  join pg_class c on c.oid = g.table_oid
		  join pg_roles l on l.rolname = $1 and not l.rolsuper and pg_has_role(l.oid, c.relowner, 'member')
		 where g.state <> 'dropped'
		 order by 1`, e.Logins.Executor)
	if err != nil {
		return nil, err
	}
	if len(owners) > 0 {
		return one(Warn, nil, "the login that deletes, %s, is a member of %s, and could delete from the tables of policies without the functions; with three logins "+
			"in database: it cannot, see docs/security.md", schemas.Identifier(e.Logins.Executor), strings.Join(owners, ", ")), nil
	}
	return ok("the deletion functions are the only way to the tables of policies"), nil
}

// checkMessages checks who may write the tag that other programs read. Events do not depend on it.
func (e *examination) checkMessages(ctx context.Context) ([]Finding, error) {
	open, err := e.list(ctx, `
		select p.oid::regprocedure::text
		  from pg_proc p
		 where p.proname = 'pg_logical_emit_message' and p.pronamespace = 'pg_catalog'::regnamespace
		   and exists (select from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a where a.grantee = 0 and a.privilege_type = 'EXECUTE')
		 order by 1`)
	if err != nil || len(open) == 0 {
		return ok("only logins with the right write them"), err
	}
	var fix []string
	for _, function := range open {
		if e.roles {
			fix = append(fix, "grant execute on function "+function+" to "+schemas.Identifier(e.Roles.Owner))
		}
		fix = append(fix, "revoke execute on function "+function+" from public")
	}
	return one(Warn, fix, "every login may write logical messages, Lapse's tag among them, of any size: programs that believe the tag can be misled"), nil
}
