package uninstall

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"lapse/internal/setup/apply"
	"lapse/planner/database"
	"lapse/replication"
	"lapse/schemas"
)

// LackingError says that a login may not do everything that uninstalling takes.
type LackingError struct {
	Login string
	SQL   []string // what gives it the rights
}

// Error says what to do.
func (e *LackingError) Error() string {
	return fmt.Sprintf("nothing was changed: login %q may not do all of it: have a superuser run this, or who may grant it, then run lapse uninstall again:\n\n%s;\n",
		e.Login, strings.Join(e.SQL, ";\n"))
}

// Fix is the statements for a program.
func (e *LackingError) Fix() string { return strings.Join(e.SQL, "; ") }

// lackingSQL lists the statements that let the session's login drop what is Lapse's: publications and schema as the catalog's owner, the
// indexes, and the deleters that no other database of the cluster needs. Dropping a role takes CREATEROLE, its rights, from PostgreSQL 16
// on its admin option, and first a revoke of what it was granted on others' objects: for a superuser's objects that takes a superuser.
func lackingSQL(owner string, deleters []string, made []apply.MadeIndex) string {
	indexes := []string{"(null, null)"}
	for i := range made {
		if made[i].There {
			indexes = append(indexes, fmt.Sprintf("(%s, %s)", schemas.Literal(made[i].Schema), schemas.Literal(made[i].Name)))
		}
	}
	literals := func(names []string) string {
		all := []string{"null"}
		for _, name := range names {
			all = append(all, schemas.Literal(name))
		}
		return strings.Join(all, ", ")
	}
	return strings.NewReplacer("{{owner}}", schemas.Literal(owner), "{{publications}}", literals(replication.Publications()),
		"{{deleters}}", literals(deleters), "{{indexes}}", strings.Join(indexes, ", ")).Replace(`
	with me as (
	  select r.oid, r.rolname, r.rolcreaterole, current_setting('server_version_num')::int >= 160000 as options
	    from pg_roles r where r.rolname = session_user and not r.rolsuper
	), dropped as (
	  select r.oid, r.rolname
	    from pg_roles r
	   where r.rolname in ({{deleters}})
	     and not exists (select from pg_shdepend s
	                      where s.refclassid = 'pg_catalog.pg_authid'::regclass and s.refobjid = r.oid
	                        and s.dbid not in (0, (select oid from pg_database where datname = current_database())))
	), rights as (
	  select d.rolname as deleter, coalesce(n.nspowner, c.relowner) as owner,
	         case when n.oid is not null then format('schema %I', n.nspname) else format('table %I.%I', k.nspname, c.relname) end as object
	    from dropped d
	    join pg_shdepend s on s.refclassid = 'pg_catalog.pg_authid'::regclass and s.refobjid = d.oid and s.deptype = 'a'
	     and s.dbid = (select oid from pg_database where datname = current_database())
	    left join pg_namespace n on s.classid = 'pg_catalog.pg_namespace'::regclass and n.oid = s.objid
	    left join pg_class c on s.classid = 'pg_catalog.pg_class'::regclass and c.oid = s.objid
	    left join pg_namespace k on k.oid = c.relnamespace
	   where coalesce(n.nspname, k.nspname) <> 'lapse'
	)
	select lack.statement
	  from (select min(every.n), every.statement from (
	    select 1, format('grant %I to %I', {{owner}}::text, me.rolname) from me
	     where not pg_has_role(me.oid, {{owner}}, case when me.options then 'set' else 'member' end)
	    union all
	    select 2, format('alter publication %I owner to %I', p.pubname, {{owner}}::text) from pg_publication p, me
	     where p.pubname in ({{publications}}) and not pg_has_role({{owner}}, p.pubowner, 'usage')
	    union all
	    select 3, format('alter role %I createrole', me.rolname) from me where not me.rolcreaterole and exists (select from dropped)
	    union all
	    select 4, format('grant %I to %I', d.rolname, me.rolname) || case when me.options then ' with admin true, inherit true' else '' end from dropped d, me
	     where not pg_has_role(me.oid, d.oid, 'usage') or me.options and not pg_has_role(me.oid, d.oid, 'member with admin option')
	    union
	    select 5, case when o.rolsuper or o.rolname = 'pg_database_owner' then format('revoke all on %s from %I', r.object, r.deleter)
	                   else format('grant %I to %I', o.rolname, me.rolname) end
	      from rights r join pg_roles o on o.oid = r.owner, me
	     where not pg_has_role(me.oid, o.oid, 'usage')
	    union
	    select 6, case when o.rolsuper then format('drop index concurrently if exists %I.%I', w.schema, w.name) else format('grant %I to %I', o.rolname, me.rolname) end
	      from (values {{indexes}}) w(schema, name) join pg_namespace n on n.nspname = w.schema join pg_class c on c.relnamespace = n.oid and c.relname = w.name
	      join pg_roles o on o.oid = c.relowner, me
	     where not pg_has_role(me.oid, o.oid, 'usage')
	  ) every(n, statement) group by every.statement) lack(n, statement)
	 order by lack.n, lack.statement`)
}

// lackingReplicationSQL is the same for dropping the slot. On Amazon RDS no role has the attribute.
const lackingReplicationSQL = `
	select format('alter role %I replication', r.rolname)
	  from pg_roles r
	 where r.rolname = session_user and not r.rolsuper and not r.rolreplication
	   and not exists (select from pg_roles s where s.rolname = 'rds_replication' and pg_has_role(r.oid, s.oid, 'member'))`

// readDeleters reads the deleters by name.
func readDeleters(ctx context.Context, q database.Querier) ([]string, error) {
	rows, err := q.Query(ctx, `select d.role::text from lapse.deleter d order by 1`)
	if err != nil {
		return nil, fmt.Errorf("look for deleters: %w", err)
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func lackingGrants(ctx context.Context, conn *pgx.Conn, sql string) ([]string, error) {
	rows, _ := conn.Query(ctx, sql) // CollectRows has its error
	lacking, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, fmt.Errorf("look whether this login may do all of it: %w", err)
	}
	return lacking, nil
}
