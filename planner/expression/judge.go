package expression

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
)

// known are the nodes that an expression over one row's columns may contain, under the names of PostgreSQL 14 and 15 and of 16 and later. Any
// node on no list is refused.
var known = []string{
	"VAR", "CONST", "FUNCEXPR", "NAMEDARGEXPR", "OPEXPR", "DISTINCTEXPR", "NULLIFEXPR", "SCALARARRAYOPEXPR", "BOOLEXPR", "SUBSCRIPTINGREF",
	"RELABELTYPE", "COERCEVIAIO", "ARRAYCOERCEEXPR", "COLLATEEXPR", "COLLATE", "CASEEXPR", "CASE", "CASEWHEN", "WHEN", "CASETESTEXPR",
	"ARRAYEXPR", "ARRAY", "ROWCOMPAREEXPR", "ROWCOMPARE", "COALESCEEXPR", "COALESCE", "MINMAXEXPR", "MINMAX", "NULLTEST", "BOOLEANTEST",
}

// refused are nodes that authors are likely to try, with advice.
var refused = map[string]string{
	"SQLVALUEFUNCTION": "it depends on when or by whom it is asked (current_date, current_user and the like): the policy's cutoff is the only clock",
	"SUBLINK":          "it holds a subquery: it may read the row's own columns only",
	"COERCETODOMAIN":   "it casts to a domain, whose checks would run: cast to the type that the domain is over",
	"ROWEXPR":          "it builds a row: compare columns one by one",
	"ROW":              "it builds a row: compare columns one by one",
	"FIELDSELECT":      "it reads a field of a composite type, which is not supported",
	"XMLEXPR":          "it builds or reads XML, which is not supported",
	"JSONEXPR":         "it uses SQL/JSON functions, which are not supported: use -> and ->>",
	"JSONISPREDICATE":  "it uses IS JSON, which is not supported",
	"NEXTVALUEEXPR":    "it draws from a sequence",
	"AGGREF":           "it holds an aggregate: it may read one row only",
	"WINDOWFUNC":       "it holds a window function: it may read one row only",
}

// steady are pg_catalog's stable functions that depend only on settings that all of Lapse's sessions and functions pin
// (TimeZone, timezone_abbreviations, DateStyle, IntervalStyle, extra_float_digits), or on the message locale for names of months. Any other stable
// function may depend on the time or on the calling role, or read tables.
var steady = []string{
	"timestamptz_pl_interval", "timestamptz_mi_interval", "interval_pl_timestamptz", "date_add", "date_subtract", "date_part", "extract",
	"date_trunc", "date", "timestamp", "timestamptz", "time", "make_timestamptz", "overlaps", "to_timestamp", "to_date",
	"date_eq_timestamptz", "date_ne_timestamptz", "date_lt_timestamptz", "date_le_timestamptz", "date_gt_timestamptz", "date_ge_timestamptz",
	"timestamp_eq_timestamptz", "timestamp_ne_timestamptz", "timestamp_lt_timestamptz", "timestamp_le_timestamptz", "timestamp_gt_timestamptz",
	"timestamp_ge_timestamptz", "timestamptz_eq_date", "timestamptz_ne_date", "timestamptz_lt_date", "timestamptz_le_date",
	"timestamptz_gt_date", "timestamptz_ge_date", "timestamptz_eq_timestamp", "timestamptz_ne_timestamp", "timestamptz_lt_timestamp",
	"timestamptz_le_timestamp", "timestamptz_gt_timestamp", "timestamptz_ge_timestamp", "concat", "concat_ws", "textanycat", "anytextcat",
	"array_to_string",
}

// conversion is a cast through a value's text.
type conversion struct{ from, to uint32 }

// uses lists the parts of an expression.
type uses struct {
	functions, operators, types, collations []uint32
	conversions                             []conversion
	implicit                                []uint32 // the source types of implicit casts
	columnTypes                             []uint32
}

// usesOf lists the parts of a tree. An unknown node, or a reference that is not a column, is a problem.
func usesOf(root *node) (u uses, problem string) {
	root.walk(func(n *node) {
		if problem == "" && !slices.Contains(known, n.tag) {
			if problem = refused[n.tag]; problem == "" {
				problem = fmt.Sprintf("it holds what is not supported in a policy (%s)", n.tag)
			}
		}
		for field, list := range map[string]*[]uint32{
			"funcid": &u.functions, "opfuncid": &u.functions, "hashfuncid": &u.functions, "negfuncid": &u.functions, "elemfuncid": &u.functions,
			"opno": &u.operators, "collOid": &u.collations, "element_typeid": &u.types, "refcontainertype": &u.types, "refelemtype": &u.types,
		} {
			if oid := n.oid(field); oid != 0 {
				*list = append(*list, oid)
			}
		}
		if n.tag == "ROWCOMPAREEXPR" || n.tag == "ROWCOMPARE" {
			u.rowComparison(n)
		}
		if n.tag == "VAR" {
			u.columnTypes = append(u.columnTypes, n.typeOf())
		} else if oid := n.typeOf(); oid != 0 {
			u.types = append(u.types, oid)
		}
		u.cast(n)
	})
	return u, problem
}

// rowComparison has a list of operators: (o 97 1754).
func (u *uses) rowComparison(n *node) {
	for i := range n.fields["opnos"] {
		one := node{fields: map[string][]string{"opno": n.fields["opnos"][i:]}}
		if oid := one.oid("opno"); oid != 0 {
			u.operators = append(u.operators, oid)
		}
	}
}

// cast records a cast's source type, and whether it is implicit: 2 is PostgreSQL's COERCE_IMPLICIT_CAST.
func (u *uses) cast(n *node) {
	if len(n.kids) == 0 {
		return
	}
	from := n.kids[0].typeOf()
	for _, form := range []string{"relabelformat", "coerceformat", "funcformat"} {
		if values := n.fields[form]; len(values) == 1 && values[0] == "2" {
			u.implicit = append(u.implicit, from)
		}
	}
	if n.tag == "COERCEVIAIO" {
		u.conversions = append(u.conversions, conversion{from, n.typeOf()})
	}
}

// object is a function, an operator or a collation in an expression.
type object struct {
	Kind       string // function, operator, collation
	Name       string
	Plain      string // the name without schema and arguments
	Catalog    bool
	Superuser  bool
	Volatility string
	Open       string // its schema, if roles other than superusers may create objects there
}

// objectsSQL reads functions $1, operators $2 with their functions, and collations $3.
const objectsSQL = `
	with used(kind, name, plain, namespace, owner, volatility) as (
	  select 'function', p.oid::regprocedure::text, p.proname::text, p.pronamespace, p.proowner, p.provolatile::text
	    from pg_proc p
	   where p.oid = any ($1) or p.oid in (select o.oprcode from pg_operator o where o.oid = any ($2))
	  union all
	  select 'operator', o.oid::regoperator::text, o.oprname::text, o.oprnamespace, o.oprowner, 'i' from pg_operator o where o.oid = any ($2)
	  union all
	  select 'collation', o.oid::regcollation::text, o.collname::text, o.collnamespace, o.collowner, 'i' from pg_collation o where o.oid = any ($3)
	)
	select u.kind, u.name, u.plain, n.nspname = 'pg_catalog', o.rolsuper, u.volatility,
	       case when n.nspname <> 'pg_catalog'
	             and exists (select from aclexplode(coalesce(n.nspacl, acldefault('n', n.nspowner))) a
	                          where a.privilege_type = 'CREATE'
	                            and not exists (select from pg_roles g where g.oid = a.grantee and g.rolsuper))
	            then quote_ident(n.nspname) else '' end
	  from used u
	  join pg_namespace n on n.oid = u.namespace
	  join pg_roles o on o.oid = u.owner
	 order by 1, 2`

// quiet are operators that never raise an error. Functions and casts may.
var (
	loudNodes = []string{"FUNCEXPR", "COERCEVIAIO", "ARRAYCOERCEEXPR"}
	quiet     = []string{"=", "<>", "<", "<=", ">", ">=", "->", "->>", "@>", "<@", "&&"}
)

// judgment is the result of checking a tree.
type judgment struct {
	problem   string
	immutable bool
	mayRaise  bool
	warnings  []string
}

// judge checks the parts of a tree. domains says that columns still have their domain types, not the domains' base types.
func judge(ctx context.Context, tx pgx.Tx, root *node, domains bool) (j judgment, err error) {
	u, problem := usesOf(root)
	if problem != "" {
		return judgment{problem: problem}, nil
	}
	facts, err := loadTypes(ctx, tx, slices.Concat(u.types, u.columnTypes, u.implicit))
	if err != nil {
		return j, err
	}
	j.immutable = true
	root.walk(func(n *node) { j.mayRaise = j.mayRaise || slices.Contains(loudNodes, n.tag) })
	j.problem = u.typesTrouble(facts, domains)
	if j.problem != "" {
		return j, nil
	}
	rows, err := tx.Query(ctx, objectsSQL, u.functions, u.operators, u.collations)
	if err != nil {
		return j, fmt.Errorf("check what an expression uses: %w", err)
	}
	objects, err := pgx.CollectRows(rows, pgx.RowToStructByPos[object])
	if err != nil {
		return j, fmt.Errorf("check what an expression uses: %w", err)
	}
	for _, o := range objects {
		if j.problem = o.trouble(); j.problem != "" {
			return j, nil
		}
		if o.Open != "" {
			j.warnings = append(j.warnings, fmt.Sprintf("%s %s is in schema %s, where others than superusers may make functions: one that fits "+
				"better would run inside the deletion, with the rights of the table's owner; keep it in a schema of its own", o.Kind, o.Name, o.Open))
		}
		j.immutable = j.immutable && o.Volatility == "i"
		j.mayRaise = j.mayRaise || o.Kind == "operator" && !slices.Contains(quiet, o.Plain)
	}
	for _, c := range u.conversions {
		j.immutable = j.immutable && facts[c.from].Fixed && facts[c.to].Fixed
	}
	return j, nil
}

// typesTrouble says which of the types cannot be used, and why.
func (u *uses) typesTrouble(facts map[uint32]typeFacts, domains bool) string {
	for _, oid := range u.types {
		if f := facts[oid]; f.Trouble != "" || f.OID == 0 {
			return fmt.Sprintf("it uses %s, %s", f.Name, f.Trouble)
		}
	}
	var enums []uint32
	for _, oid := range u.columnTypes {
		enums = append(enums, facts[oid].Enum)
		if f := facts[oid]; f.Trouble != "" && (!domains || !f.Domain) {
			return fmt.Sprintf("it uses %s, %s", f.Name, f.Trouble)
		}
	}
	for _, oid := range u.types {
		if f := facts[oid]; !domains && f.Enum != 0 && !slices.Contains(enums, f.Enum) {
			return fmt.Sprintf("it casts to %s, an enum that no column it reads has, so nobody would notice a change of its labels: "+
				"compare texts, or give the column that type", f.Name)
		}
	}
	for _, oid := range u.implicit {
		if f := facts[oid]; !f.Catalog && !f.Domain {
			return fmt.Sprintf("a %[1]s would be read as another type, since operators of %[1]s are not looked for outside pg_catalog: "+
				"cast it to the type that is meant (column::text), or name the operator with its schema (operator(schema.=))", f.Name)
		}
	}
	for _, c := range u.conversions {
		if from, to := facts[c.from], facts[c.to]; from.Output != "i" || to.Input != "i" {
			return fmt.Sprintf("it casts %s to %s, which depends on the session or reads tables", from.Name, to.Name)
		}
	}
	return ""
}

// trouble says why an object cannot be used; "" if it can.
func (o *object) trouble() string {
	switch {
	case !o.Superuser:
		return fmt.Sprintf("%s %s is neither PostgreSQL's nor a superuser's, and would run inside the deletion with rights that its owner may not have", o.Kind, o.Name)
	case o.Volatility == "v":
		return fmt.Sprintf("function %s is volatile: it may do or read anything", o.Name)
	case o.Volatility == "s" && !o.Catalog:
		return fmt.Sprintf("function %s is stable, so that it may read tables, or depend on when or by whom it is asked: only immutable ones can be used", o.Name)
	case o.Volatility == "s" && !slices.Contains(steady, o.Plain):
		return fmt.Sprintf("function %s depends on when or by whom it is asked, on settings, or on other tables: the policy's cutoff is the only clock", o.Name)
	}
	return ""
}
