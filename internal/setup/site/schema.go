package site

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"

	"lapse/planner/database"
	"lapse/schemas"
)

// SchemaError says that schema "lapse" has another owner, or contains something that is not Lapse's. Foreign code in it would run with the
// rights of its readers.
type SchemaError struct {
	Owner   string   // of the schema
	Want    string   // the catalog's owner, as the settings name it
	Foreign []string // foreign objects, each with the role that owns it
}

// maxForeign is how many foreign objects an error names.
const maxForeign = 5

// Error says who owns what and what to do.
func (e *SchemaError) Error() string {
	if e.Owner != e.Want {
		return fmt.Sprintf("schema lapse in this database belongs to %s, not to %s, and nothing in it was touched: what others put "+
			"there would run with this login's rights. If it is Lapse's, set roles: { prefix: … } in lapse.yaml to the prefix that it "+
			"was installed with; if it is somebody else's, have a superuser run: alter schema lapse rename to …",
			schemas.Identifier(e.Owner), schemas.Identifier(e.Want))
	}
	named := e.Foreign
	more := ""
	if len(named) > maxForeign {
		named, more = named[:maxForeign], fmt.Sprintf(" and %d more", len(e.Foreign)-maxForeign)
	}
	return fmt.Sprintf("in schema lapse there is what is not Lapse's, and nothing in the schema was touched, because it would run "+
		"with this login's rights: %s%s. Have a superuser look at it and drop it, then run this again", strings.Join(named, "; "), more)
}

// FunctionError says that a function of the catalog's owner differs from what this version of Lapse makes. It would run with the rights of
// its callers.
type FunctionError struct{ Function, What string }

// Error says what to do.
func (e *FunctionError) Error() string {
	return fmt.Sprintf("function %s %s: somebody who can become the owner of schema lapse changed it, or another version of lapse made it, "+
		"and nothing in the schema was called. Find out who, and have a DBA look at it without calling it; then drop schema lapse "+
		"and the replication slot and run lapse init again", e.Function, e.What)
}

// schemaSQL reads only the system catalog. Every object of a schema depends on the schema in pg_depend, and on its owner in pg_shdepend,
// unless that is the superuser that initdb made, who has oid 10.
//
// If the catalog's owner owns everything, only a superuser, or a role that was granted a right, can attach code to it. That is checked too:
// triggers other than ours, casts, rules except that of our view, row security, children, and expressions (of defaults, generated columns,
// checks, indexes, statistics) that use a function, operator or type from outside.
const schemaSQL = `
	with installed as (
	  select n.oid, pg_get_userbyid(n.nspowner) as owner from pg_namespace n where n.nspname = 'lapse'
	), object as (
	  select d.classid, d.objid, coalesce(s.refobjid, 10) as owner
	    from installed
	    join pg_depend d on d.refclassid = 'pg_catalog.pg_namespace'::regclass and d.refobjid = installed.oid and d.deptype = 'n'
	    left join pg_shdepend s on s.dbid = (select oid from pg_database where datname = current_database())
	         and s.classid = d.classid and s.objid = d.objid and s.objsubid = 0 and s.deptype = 'o'
	), relation as (
	  select c.oid, c.relkind, c.relkind = 'v' and c.relname = 'caller' as ours from installed join pg_class c on c.relnamespace = installed.oid
	), part(classid, objid) as (
	  select 'pg_catalog.pg_class'::regclass, r.oid from relation r
	  union all
	  select 'pg_catalog.pg_attrdef'::regclass, a.oid from relation r join pg_attrdef a on a.adrelid = r.oid
	  union all
	  select 'pg_catalog.pg_constraint'::regclass, c.oid from relation r join pg_constraint c on c.conrelid = r.oid
	  union all
	  select 'pg_catalog.pg_constraint'::regclass, c.oid
	    from object o join pg_constraint c on c.contypid = o.objid
	   where o.classid = 'pg_catalog.pg_type'::regclass
	  union all
	  select 'pg_catalog.pg_rewrite'::regclass, w.oid from relation r join pg_rewrite w on w.ev_class = r.oid
  union all
  select 'pg_catalog.pg_statistic_ext'::regclass, s.oid from relation r join pg_statistic_ext s on s.stxrelid = r.oid
	), finding(what) as (
	  select format('%s belongs to %I', pg_describe_object(o.classid, o.objid, 0), pg_get_userbyid(o.owner))
	    from object o
	    join pg_roles w on w.oid = o.owner
	   where w.rolname <> $1
	     and not (o.classid = 'pg_catalog.pg_proc'::regclass and starts_with(w.rolname, $2)
	              and substr(w.rolname, length($2) + 1) ~ '^[0-9]+$')
	  union all
	  select format('%s is no plain table', pg_describe_object('pg_catalog.pg_class'::regclass, r.oid, 0))
	    from relation r
	   where r.relkind in ('v', 'm', 'f', 'p') and not r.ours
	  union all
	  select format('%s calls %s of %I', pg_describe_object('pg_catalog.pg_trigger'::regclass, t.oid, 0), f.oid::regprocedure,
	                pg_get_userbyid(f.proowner))
	    from relation r
	    join pg_trigger t on t.tgrelid = r.oid
	    join pg_proc f on f.oid = t.tgfoid
	   where not (t.tgisinternal and f.pronamespace = 'pg_catalog'::regnamespace)
	     and not ((t.tgname, f.proname) in (('append_only', 'refuse_change'), ('pruned', 'check_pruned'), ('bounded', 'bound_pruning'),
	                                           ('entered', 'count_quarantine'), ('gone', 'count_quarantine'))
	              and t.tgqual is null and f.pronamespace = (select oid from installed))
	  union all
	  select pg_describe_object('pg_catalog.pg_cast'::regclass, k.oid, 0)
	    from installed
	    join pg_type y on y.typnamespace = installed.oid
	    join pg_cast k on y.oid in (k.castsource, k.casttarget)
	  union all
	  select pg_describe_object('pg_catalog.pg_rewrite'::regclass, w.oid, 0)
	    from relation r join pg_rewrite w on w.ev_class = r.oid
   where not (r.ours and w.rulename = '_RETURN')
	  union all
	  select pg_describe_object('pg_catalog.pg_policy'::regclass, p.oid, 0)
	    from relation r join pg_policy p on p.polrelid = r.oid
	  union all
	  select format('%s inherits from %s', i.inhrelid::regclass, i.inhparent::regclass)
	    from relation r join pg_inherits i on i.inhparent = r.oid
	   where r.relkind = 'r'
	  union all
	  select format('%s uses %s', pg_describe_object(p.classid, p.objid, 0), pg_describe_object(d.refclassid, d.refobjid, 0))
	    from part p
	    join pg_depend d on d.classid = p.classid and d.objid = p.objid
	         and d.refclassid in ('pg_catalog.pg_proc'::regclass, 'pg_catalog.pg_operator'::regclass,
	                              'pg_catalog.pg_type'::regclass, 'pg_catalog.pg_opclass'::regclass)
	   where not exists (select from object o where o.classid = d.refclassid and o.objid = d.refobjid)
	)
	select installed.owner, array(select distinct f.what from finding f order by 1) from installed`

// CheckSchema reports whether there is a schema "lapse". It returns a *SchemaError unless everything in it is Lapse's, and a *FunctionError
// if a function of the catalog's owner differs from what this version makes. Call it before anything in the schema is called: it reads only
// the system catalog and the installed version, so no foreign code runs. Afterwards only a role that can become the schema's owner can
// plant code: no other role can create in it.
func CheckSchema(ctx context.Context, q database.Querier, roles schemas.Roles) (there bool, err error) {
	expected := sync.OnceValues(func() ([]schemas.Function, error) { return schemas.CatalogFunctions(roles) })
	go func() { _, _ = expected() }() // while the server answers
	rows, err := q.Query(ctx, schemaSQL, roles.Owner, roles.DeleterPrefix)
	if err != nil {
		return false, fmt.Errorf("check schema lapse: %w", err)
	}
	type facts struct {
		Owner   string
		Foreign []string
	}
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[facts])
	switch {
	case err != nil:
		return false, fmt.Errorf("check schema lapse: %w", err)
	case len(found) == 0:
		return false, nil
	case found[0].Owner != roles.Owner || len(found[0].Foreign) > 0:
		return true, &SchemaError{Owner: found[0].Owner, Want: roles.Owner, Foreign: found[0].Foreign}
	}
	return true, checkFunctions(ctx, q, roles, expected)
}

// checkFunctions compares the functions of the catalog's owner with the migrations' texts. It skips a catalog of another version, which is
// refused or upgraded before any of its functions is called. The batches that call the deleters' functions compare those.
func checkFunctions(ctx context.Context, q database.Querier, roles schemas.Roles, read func() ([]schemas.Function, error)) error {
	// A login that may not read the version, as before its first init, checks again later as the catalog's owner.
	var readable bool
	err := q.QueryRow(ctx, `select coalesce(has_table_privilege(to_regclass('lapse.installation'), 'select'), false)`).Scan(&readable)
	if err != nil {
		return fmt.Errorf("look for the catalog's version: %w", err)
	}
	if !readable {
		return nil
	}
	var version int
	err = q.QueryRow(ctx, `select coalesce(max(schema_version), 0) from lapse.installation`).Scan(&version)
	if err != nil {
		return fmt.Errorf("read the catalog's version: %w", err)
	}
	if version != schemas.Version {
		return nil
	}
	expected, err := read()
	if err != nil {
		return err
	}
	rows, err := q.Query(ctx, schemas.FunctionTexts, []string(nil))
	if err != nil {
		return fmt.Errorf("read the functions of schema lapse: %w", err)
	}
	found, err := schemas.ReadFunctions(rows)
	if err != nil {
		return fmt.Errorf("read the functions of schema lapse: %w", err)
	}
	return compareFunctions(expected, found, roles)
}

// compareFunctions returns a *FunctionError for the first function that differs, is missing or duplicated, or belongs to the catalog's
// owner without being expected.
func compareFunctions(expected []schemas.Function, found []schemas.FoundFunction, roles schemas.Roles) error {
	named := map[string][]schemas.FoundFunction{}
	for _, is := range found {
		named[is.Name] = append(named[is.Name], is)
	}
	for i := range expected {
		name := expected[i].Name
		if n := len(named[name]); n != 1 {
			return &FunctionError{name, fmt.Sprintf("exists %d times", n)}
		}
		if what := expected[i].Differs(&named[name][0]); what != "" {
			return &FunctionError{name, what}
		}
		delete(named, name)
	}
	for i := range found {
		if _, unexpected := named[found[i].Name]; unexpected && found[i].Owner == roles.Owner {
			return &FunctionError{found[i].Name, "is none of Lapse's"}
		}
	}
	return nil
}
