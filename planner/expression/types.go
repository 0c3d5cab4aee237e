package expression

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// typeFacts is what Lapse must know about a type.
type typeFacts struct {
	OID     uint32
	Name    string // as format_type writes it
	Trouble string // why its values cannot be read; "" if they can
	Catalog bool   // its operators are pg_catalog's, because the type is, or because it or its elements are an enum
	Domain  bool
	Input   string // the volatility of the input functions of the type and its elements; 'i' if they depend on pinned settings only
	Output  string
	Fixed   bool   // neither Input nor Output depends on any setting
	Enum    uint32 // the enum of the type, or of its elements or its range; 0 for none
}

// typesSQL reads types $1. A superuser's type is trusted only while a superuser owns each of its functions too, because functions can be given
// away later. The stable functions in steady depend only on pinned settings.
const typesSQL = `
	with steady(name) as (
	  values ('date_in'), ('date_out'), ('timestamp_in'), ('timestamp_out'), ('timestamptz_in'), ('timestamptz_out'), ('time_in'), ('time_out'),
	         ('interval_in'), ('interval_out'), ('enum_in'), ('enum_out'), ('array_in'), ('array_out')
	), inner_type as (
	  select y.oid, y.typtype, coalesce(e.oid, y.oid) as element, y.typinput, y.typoutput
	    from unnest($1::oid[]) w(oid)
	    join pg_type y on y.oid = w.oid
	    left join pg_type e on e.typarray = y.oid
	), facts as (
	  select i.oid, i.typtype, t.typtype as kind, t.typnamespace = 'pg_catalog'::regnamespace as catalog, t.oid as element,
	         array[i.typinput, t.typinput]::oid[] as input, array[i.typoutput, t.typoutput]::oid[] as output,
	         r.rngsubtype as subtype,
	         exists (select from pg_roles o where o.oid = t.typowner and o.rolsuper)
	           and not exists (
	             select from pg_proc f join pg_roles o on o.oid = f.proowner
	              where f.oid in (t.typinput, t.typoutput, t.typmodin, t.typmodout, r.rngcanonical, r.rngsubdiff) and not o.rolsuper) as trusted
	    from inner_type i
	    join pg_type t on t.oid = i.element
	    left join pg_range r on t.oid in (r.rngtypid, r.rngmultitypid)
	)
	select f.oid, format_type(f.oid, null),
	       case when f.kind = 'e' then ''
	            when f.kind = 'd' and f.typtype <> 'd' then 'an array of a domain, whose checks would run while the text is read'
	            when f.kind = 'd' then 'a domain'
	            when f.kind = 'c' then 'a composite type'
	            when f.kind = 'p' then 'a pseudo-type'
	            when f.element in ('regclass'::regtype, 'regcollation'::regtype, 'regconfig'::regtype, 'regdictionary'::regtype,
	                               'regnamespace'::regtype, 'regoper'::regtype, 'regoperator'::regtype, 'regproc'::regtype,
	                               'regprocedure'::regtype, 'regrole'::regtype, 'regtype'::regtype, 'refcursor'::regtype,
	                               'pg_node_tree'::regtype, 'txid_snapshot'::regtype, 'pg_snapshot'::regtype)
	              then 'a type whose values mean something to the server'
	            when not f.trusted then 'a type that is neither PostgreSQL''s nor a superuser''s'
	            when f.subtype is not null and not exists (
	                   select from pg_type s join pg_roles o on o.oid = s.typowner
	                    where s.oid = f.subtype and s.typtype in ('b', 'e') and o.rolsuper)
	              then 'a range over a type that cannot be read'
	            else '' end,
	       f.catalog or f.kind = 'e', f.typtype = 'd',
	       (select max(case when p.proname in (select s.name from steady s) then 'i' else p.provolatile end::text) from pg_proc p where p.oid = any (f.input)),
	       (select max(case when p.proname in (select s.name from steady s) then 'i' else p.provolatile end::text) from pg_proc p where p.oid = any (f.output)),
	       not exists (select from pg_proc p where p.oid = any (f.input || f.output) and p.provolatile <> 'i'),
	       coalesce((select e.oid from pg_type e where e.oid in (f.element, f.subtype) and e.typtype = 'e'), 0)
	  from facts f`

// loadTypes reads the facts about types.
func loadTypes(ctx context.Context, tx pgx.Tx, oids []uint32) (map[uint32]typeFacts, error) {
	rows, err := tx.Query(ctx, typesSQL, oids)
	if err != nil {
		return nil, fmt.Errorf("check the types of an expression: %w", err)
	}
	all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[typeFacts])
	if err != nil {
		return nil, fmt.Errorf("check the types of an expression: %w", err)
	}
	facts := make(map[uint32]typeFacts, len(all))
	for _, f := range all {
		facts[f.OID] = f
	}
	return facts, nil
}
