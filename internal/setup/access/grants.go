package access

import (
	"fmt"
	"strings"

	"lapse/schemas"
)

// PolicyTable is a table as a policy file names it.
type PolicyTable struct {
	Name   string // schema.table, quoted as in SQL
	Column string // the table's column that the policy reads; "" if the file does not say
	Index  bool   // apply makes an index
}

// Managed is the provider of the server, which decides what no role may do there.
type Managed string

// The servers.
const (
	OwnServer Managed = "" // or any other
	RDS       Managed = "rds"
	CloudSQL  Managed = "cloudsql"
	Azure     Managed = "azure"
)

// ManagedServers are the providers that GrantsSQL has a variant for.
func ManagedServers() []string { return []string{string(RDS), string(CloudSQL), string(Azure)} }

// who says which role runs the script, and how to change the server's settings.
func (m Managed) who() string {
	const rights = `
--   PostgreSQL 14 and 15     it has CREATEROLE there, and that is enough
--   PostgreSQL 16 and later  it needs ADMIN OPTION on the owners of the tables beside that; the maker of a role has it
--   either                   it owns the database, or may grant CREATE on it, and USAGE on the tables' schemas
-- Nobody is a superuser there: a table that belongs to the provider's superuser cannot have a policy.
`
	switch m {
	case RDS:
		return `-- For Amazon RDS and Aurora: run it as a member of rds_superuser.` + rights +
			`-- Before: rds.logical_replication = 1 in the parameter group, and a restart. There is no pg_hba.conf: logins with passwords, and
-- security groups, say who may connect.
`
	case CloudSQL:
		return `-- For Google Cloud SQL and AlloyDB: run it as a member of cloudsqlsuperuser.` + rights +
			`-- Before: the flag cloudsql.logical_decoding = on, and a restart. There is no pg_hba.conf: authorised networks, or the proxy,
-- say who may connect.
`
	case Azure:
		return `-- For Azure Database for PostgreSQL, flexible server: run it as a member of azure_pg_admin.` + rights +
			`-- Before: the server parameter wal_level = logical, and a restart. There is no pg_hba.conf: the firewall says who may connect.
`
	case OwnServer:
	}
	return ""
}

// replication lets the auditor read the write-ahead log.
func (m Managed) replication(auditor string) string {
	switch m {
	case RDS:
		return "-- nobody may give the attribute REPLICATION there; membership in rds_replication stands for it\n" +
			fmt.Sprintf("grant rds_replication to %s;\n", schemas.Identifier(auditor))
	case CloudSQL:
		return "-- a member of cloudsqlsuperuser that has the attribute may give it: alter user CURRENT_USER with replication\n" + giveReplication(auditor)
	case Azure:
		return "-- azure_pg_admin may give the attribute\n" + giveReplication(auditor)
	case OwnServer:
	}
	return fmt.Sprintf("-- On Amazon RDS and Aurora write instead: grant rds_replication to %s;\n%s", schemas.Identifier(auditor), giveReplication(auditor))
}

// GrantsSQL returns the script that a DBA runs in the database: it makes the roles and the logins and, for tables, what deleting from them
// takes. It is one transaction and safe to repeat. It looks up who owns what, and does not need Lapse to be installed.
func GrantsSQL(roles schemas.Roles, database string, logins Logins, tables []PolicyTable, managed Managed) string {
	var sql strings.Builder
	sql.WriteString(grantsHead(database, len(tables) > 0, managed))
	if len(tables) > 0 {
		sql.WriteString("\n-- First what would have to be refused.\n" + Block(fillTables(circleBlock, roles, logins, tables)))
	}
	sql.WriteString("\n" + rolesSQL(roles, database))
	sql.WriteString("\n-- the logins that play these roles; give them passwords: alter role … password '…'\n" + loginsSQL(roles, logins))
	sql.WriteString(managed.replication(logins.Auditor))
	if len(tables) > 0 {
		sql.WriteString("\n-- One role for each owner of tables, which nobody can log in as, owns the functions that delete from them.\n" +
			Block(fillTables(deletersBlock, roles, logins, tables)))
	}
	sql.WriteString("\ncommit;\n")
	return sql.String()
}

func grantsHead(database string, forTables bool, managed Managed) string {
	head := fmt.Sprintf("-- What Lapse needs in database %s. Run it in that database: it is one transaction, and safe to repeat.\n--\n",
		schemas.Identifier(database))
	const settings = `begin;
set local search_path = pg_catalog, pg_temp;
set local standard_conforming_strings = on;
`
	if who := managed.who(); who != "" {
		return head + who + settings
	}
	return head + fmt.Sprintf(`-- A superuser may do all of it. On a managed server, where nobody is one (--managed has variants for some):
--   PostgreSQL 14 and 15     a role with CREATEROLE
--   PostgreSQL 16 and later  a role with CREATEROLE%s
--   either                   that owns the database, or may grant CREATE on it%s
--   the attribute REPLICATION, below
--     PostgreSQL 14 and 15     a superuser alone may give it; have one run that statement
--     PostgreSQL 16 and later  a role with CREATEROLE may that has REPLICATION itself
--     Google Cloud SQL         a member of cloudsqlsuperuser may
--     Amazon RDS and Aurora    nobody may, and membership in rds_replication stands for it
%s`, pick(forTables, "\n--                            and ADMIN OPTION on the owners of the tables", ""),
		pick(forTables, "\n--                            and usage on the tables' schemas", ""), settings)
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
		rows[i] = fmt.Sprintf("(%s, %s, %t)", schemas.Literal(t.Name), schemas.Literal(t.Column), t.Index)
	}
	return strings.NewReplacer(
		"{{tables}}", strings.Join(rows, ",\n               "),
		"{{login}}", schemas.Literal(logins.Owner), "{{owner}}", schemas.Literal(roles.Owner), "{{prefix}}", schemas.Literal(roles.DeleterPrefix),
		"{{recipe}}", schemas.Literal(circleRecipe(roles.Owner)), "{{leave}}", schemas.Literal(leaveRoles(roles.Owner)),
	).Replace(body)
}

// circleBlock refuses missing tables, and owners that would be members of the catalog's owner.
const circleBlock = `declare
  login constant text := {{login}};  -- applies the policies
  owner constant text := {{owner}};
  t     record;
begin
  for t in
    select w.name, o.oid, o.rolname, o.rolsuper
      from (values {{tables}}) w(name, col, makes)
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

// deletersBlock makes the deleters, as EnsureDeleter does, and refuses one that somebody else made or can use. It lets the applying login
// act for the owners of the tables, and of tables in which foreign keys delete, because only its owner may publish a table.
const deletersBlock = `declare
  login   constant text := {{login}};  -- applies the policies
  options constant boolean := current_setting('server_version_num')::int >= 160000;
  t       record;
  r       record;
  deleter   text;
  strangers text;
begin
  for t in
    select w.name, w.col, w.makes, c.oid, o.rolname as owner, o.oid as owner_oid,
           o.rolsuper or o.rolname = 'pg_database_owner' as super
      from (values {{tables}}) w(name, col, makes)
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
      if t.makes and not t.super and not (has_schema_privilege(t.owner, r.schema, 'usage') and has_schema_privilege(t.owner, r.schema, 'create')) then
        execute format('grant usage, create on schema %I to %I', r.nspname, t.owner);
      end if;
      if t.super then
        execute format('grant select, delete, update%s on %s to %I', case when t.col <> '' then format(' (%I)', t.col) else '' end, r.name, deleter);
      end if;
    end loop;
  end loop;

  for r in
    with recursive touched(oid) as (
      select c.oid
        from (values {{tables}}) w(name, col, makes)
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
