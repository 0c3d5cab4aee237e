package setup

import (
	"fmt"
	"strings"

	"lapse/schemas"
)

// PolicyTable is a table as a policy file names it.
type PolicyTable struct {
	Name   string // schema.table, quoted as in SQL
	Column string // that the policy counts from
}

// GrantsSQL returns the script that a DBA runs in the database: it makes the roles and the logins, and, for tables, what
// deleting from them takes. It is one transaction and safe to repeat; it looks up by itself who owns what, and needs
// nothing of Lapse to be there.
func GrantsSQL(roles schemas.Roles, database string, logins Logins, tables []PolicyTable) string {
	var sql strings.Builder
	sql.WriteString(grantsHead(database, len(tables) > 0))
	if len(tables) > 0 {
		sql.WriteString("\n-- First what would have to be refused.\n" + block(fillTables(circleBlock, roles, logins, tables)))
	}
	sql.WriteString("\n" + rolesSQL(roles, database))
	sql.WriteString("\n-- the logins that play these roles; give them passwords: alter role … password '…'\n" + loginsSQL(roles, logins))
	fmt.Fprintf(&sql, "-- On Amazon RDS and Aurora write instead: grant rds_replication to %s;\n%s", schemas.Identifier(logins.Auditor), giveReplication(logins.Auditor))
	if len(tables) > 0 {
		sql.WriteString("\n-- One role for each owner of tables, which nobody can log in as, owns the functions that delete from them.\n" +
			block(fillTables(deletersBlock, roles, logins, tables)))
	}
	sql.WriteString("\ncommit;\n")
	return sql.String()
}

func grantsHead(database string, forTables bool) string {
	head := fmt.Sprintf(`-- What Lapse needs in database %s. Run it in that database: it is one transaction, and safe to repeat.
--
-- A superuser may do all of it. On a managed server, where nobody is one:
--   PostgreSQL 14 and 15     a role with CREATEROLE
--   PostgreSQL 16 and later  a role with CREATEROLE%s
--   either                   that owns the database, or may grant CREATE on it%s
--   the attribute REPLICATION, below: on Google Cloud SQL a member of cloudsqlsuperuser may give it; on Amazon RDS and
--   Aurora nobody may, and membership in rds_replication stands for it
begin;
set local search_path = pg_catalog, pg_temp;
set local standard_conforming_strings = on;
`, schemas.Identifier(database), pick(forTables, "\n--                            and ADMIN OPTION on the owners of the tables", ""),
		pick(forTables, "\n--                            and usage on the tables' schemas", ""))
	return head
}

func pick(yes bool, a, b string) string {
	if yes {
		return a
	}
	return b
}

// fillTables writes the names into a block.
func fillTables(body string, roles schemas.Roles, logins Logins, tables []PolicyTable) string {
	rows := make([]string, len(tables))
	for i, t := range tables {
		rows[i] = "(" + schemas.Literal(t.Name) + ", " + schemas.Literal(t.Column) + ")"
	}
	return strings.NewReplacer(
		"{{tables}}", strings.Join(rows, ",\n               "),
		"{{login}}", schemas.Literal(logins.Owner), "{{owner}}", schemas.Literal(roles.Owner), "{{prefix}}", schemas.Literal(roles.DeleterPrefix),
		"{{recipe}}", schemas.Literal(circleRecipe(roles.Owner)), "{{leave}}", schemas.Literal(leaveRoles(roles.Owner)),
	).Replace(body)
}

// circleBlock refuses tables that are not there, and owners that would be members of the catalog's owner.
const circleBlock = `declare
  login constant text := {{login}};  -- applies the policies
  owner constant text := {{owner}};
  t     record;
begin
  for t in
    select w.name, o.oid, o.rolname, o.rolsuper
      from (values {{tables}}) w(name, col)
      left join pg_namespace n on n.nspname = (parse_ident(w.name))[1]
      left join pg_class c on c.relnamespace = n.oid and c.relname = (parse_ident(w.name))[2]
      left join pg_roles o on o.oid = c.relowner
  loop
    if t.oid is null then
      raise exception 'there is no table % in database %', t.name, current_database();
    end if;
    if t.rolsuper then
      continue;
    elsif exists (select from pg_roles r where r.rolname = owner and pg_has_role(t.oid, r.oid, 'member')) then
      raise exception '% owns % and is a member of %, so that the functions that delete for it would own the catalog',
        quote_ident(t.rolname), t.name, owner using hint = {{leave}} || quote_ident(t.rolname) || ', then ' || {{recipe}};
    elsif exists (select from pg_roles r where r.rolname = login and pg_has_role(t.oid, r.oid, 'member')) then
      raise exception '% owns % and applies the policies, so that the functions that delete for it would own the catalog',
        quote_ident(t.rolname), t.name using hint = {{recipe}};
    end if;
  end loop;
end`

// deletersBlock makes the deleters, as EnsureDeleter does, refuses one that somebody else made or can use, and lets the
// applying login act for the owners of the tables and of what foreign keys take along: to publish a table is its owner's
// right.
const deletersBlock = `declare
  login   constant text := {{login}};  -- applies the policies
  options constant boolean := current_setting('server_version_num')::int >= 160000;
  t       record;
  r       record;
  deleter   text;
  strangers text;
begin
  for t in
    select w.name, w.col, c.oid, o.rolname as owner, o.oid as owner_oid,
           o.rolsuper or o.rolname = 'pg_database_owner' as super
      from (values {{tables}}) w(name, col)
      join pg_namespace n on n.nspname = (parse_ident(w.name))[1]
      join pg_class c on c.relnamespace = n.oid and c.relname = (parse_ident(w.name))[2]
      join pg_roles o on o.oid = c.relowner
  loop
    deleter := {{prefix}} || t.owner_oid;
    if not exists (select from pg_roles d where d.rolname = deleter) then
      execute format('create role %I nologin', deleter);
    end if;
    select string_agg(distinct quote_ident(u.rolname), ', ') into strangers
      from pg_auth_members m
      join pg_roles u on u.oid = m.member
      join pg_roles d on d.oid = m.roleid
     where d.rolname = deleter and not pg_has_role(u.oid, {{owner}}::name, 'member')
       and coalesce((to_jsonb(m) ->> 'inherit_option')::boolean or (to_jsonb(m) ->> 'set_option')::boolean
                    or m.admin_option and u.rolname <> session_user, true);
    if strangers is not null then
      raise exception '% may grant % or is a member of it, and could change its functions', strangers, deleter
        using hint = format('have a superuser run: revoke %I from %s cascade', deleter, strangers);
    end if;
    if not t.super and not pg_has_role(deleter, t.owner, 'usage') then
      execute format('grant %I to %I', t.owner, deleter) || case when options then ' with inherit true, set false' else '' end;
    end if;
    if not pg_has_role(login, deleter, case when options then 'set' else 'member' end) then
      execute format('grant %I to %I', deleter, login) || case when options then ' with inherit false, set true' else '' end;
    end if;
    for r in
      with recursive tree(oid) as (
        select t.oid union select i.inhrelid from tree join pg_inherits i on i.inhparent = tree.oid
      )
      select format('%I.%I', n.nspname, c.relname) as name, n.nspname, n.oid as schema
        from tree
        join pg_class c on c.oid = tree.oid
        join pg_namespace n on n.oid = c.relnamespace
       order by 1
    loop
      if not has_schema_privilege(deleter, r.schema, 'usage') then
        execute format('grant usage on schema %I to %I', r.nspname, deleter);
      end if;
      if t.super then
        execute format('grant select, delete, update (%I) on %s to %I', t.col, r.name, deleter);
      end if;
    end loop;
  end loop;

  for r in
    with recursive touched(oid) as (
      select c.oid
        from (values {{tables}}) w(name, col)
        join pg_namespace n on n.nspname = (parse_ident(w.name))[1]
        join pg_class c on c.relnamespace = n.oid and c.relname = (parse_ident(w.name))[2]
      union
      select n.oid
        from touched
       cross join lateral (
         select i.inhrelid from pg_inherits i where i.inhparent = touched.oid
         union all
         select f.conrelid from pg_constraint f where f.contype = 'f' and f.confrelid = touched.oid and f.confdeltype = 'c'
       ) n(oid)
    )
    select o.rolname, o.rolsuper or o.rolname = 'pg_database_owner' as super, min(c.oid::regclass::text) as example
      from touched
      join pg_class c on c.oid = touched.oid
      join pg_roles o on o.oid = c.relowner
     where not pg_has_role(login, o.oid, 'usage')
     group by 1, 2
     order by 1
  loop
    if r.super then
      raise warning '% belongs to %, and only its owner may publish it: give it to another role, or apply its policy as a superuser',
        r.example, quote_ident(r.rolname);
    else
      execute format('grant %I to %I', r.rolname, login) || case when options then ' with inherit true' else '' end;
    end if;
  end loop;
end`
