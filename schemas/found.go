package schemas

import (
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// FoundFunction is a function of schema "lapse" as read from the system catalog.
type FoundFunction struct {
	Function
	// Plain: it is no procedure or aggregate, no argument has a default, and its types are PostgreSQL's or of schema lapse, and no
	// domains. A call of any other function would run more than its text.
	Plain    bool
	Grantees []string // the roles that may call it
	// Place and Version identify the row version that all of this was read from, but for the names of roles, of the language and of types: any change to
	// the function makes another one.
	Place   pgtype.TID
	Version string // oid and xmin: VACUUM FULL puts rows elsewhere with their xmin
}

// FunctionTexts is the query that ReadFunctions reads: the functions of schema lapse with the names $1, given without schema, or all of
// them if $1 is null. It reads only the system catalog.
const FunctionTexts = `
	select 'lapse.' || p.proname, pg_get_userbyid(p.proowner)::text, l.lanname::text,
	       case p.provolatile when 'i' then 'immutable' when 's' then 'stable' else 'volatile' end,
	       p.prosecdef, p.proisstrict, coalesce(p.proconfig, '{}'), p.prosrc,
	       p.prokind = 'f' and p.pronargdefaults = 0 and p.provariadic = 0 and p.prosqlbody is null
	         and not exists (
	           select from pg_type t
	            where t.oid = any (p.proargtypes::oid[] || coalesce(p.proallargtypes, '{}') || p.prorettype)
	              and (t.typtype = 'd' or t.typnamespace not in (p.pronamespace, 'pg_catalog'::regnamespace))),
	       array(select coalesce(g.rolname::text, 'public')
	               from aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
	               left join pg_roles g on g.oid = a.grantee),
	       p.ctid, concat(p.oid, ' ', p.xmin)
	  from pg_proc p
	  join pg_language l on l.oid = p.prolang
	 where ($1::name[] is null or p.proname = any ($1))
	   and p.pronamespace = (select n.oid from pg_namespace n where n.nspname = 'lapse')
	 order by 1, p.oid`

// ReadFunctions returns the functions that a query of FunctionTexts found. It closes rows.
func ReadFunctions(rows pgx.Rows) ([]FoundFunction, error) {
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (f FoundFunction, err error) {
		err = row.Scan(&f.Name, &f.Owner, &f.Language, &f.Volatility, &f.Definer, &f.Strict, &f.Settings, &f.Body, &f.Plain, &f.Grantees, &f.Place, &f.Version)
		for i, s := range f.Settings {
			name, value, _ := strings.Cut(s, "=")
			f.Settings[i] = strings.ToLower(name) + "=" + value
		}
		slices.Sort(f.Settings)
		return f, err
	})
}

// Differs says how a function that was found differs from f; "" if it does not. It does not compare who may call it.
func (f *Function) Differs(is *FoundFunction) string {
	switch {
	case is.Owner != f.Owner:
		return "is owned by " + is.Owner + ", not by " + f.Owner
	case is.Definer != f.Definer:
		return "does not run with the rights that it should"
	case is.Body != f.Body:
		return "has another text"
	case is.Language != f.Language, is.Volatility != f.Volatility, is.Strict != f.Strict:
		return "has another language or other properties"
	case !is.Plain:
		return "has other arguments or results"
	case !slices.Equal(is.Settings, f.Settings):
		return "has other settings"
	}
	return ""
}
